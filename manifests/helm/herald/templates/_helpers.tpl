{{/* The labels that the DaemonSet selects its pods by. They never change. */}}
{{- define "herald.selector" -}}
app.kubernetes.io/name: herald
app.kubernetes.io/component: speaker
{{- end}}

{{/* The labels of all objects. */}}
{{- define "herald.labels" -}}
app.kubernetes.io/name: herald
app.kubernetes.io/instance: {{.Release.Name}}
app.kubernetes.io/version: {{.Chart.AppVersion}}
app.kubernetes.io/managed-by: {{.Release.Service}}
helm.sh/chart: {{.Chart.Name}}-{{.Chart.Version}}
{{- end}}

{{/* Not empty if Herald announces VIPs of Services, for which it needs the API. */}}
{{- define "herald.services" -}}
{{- if kindIs "map" .Values.speaker.services}}true{{end -}}
{{- end}}

{{/* Not empty if Herald sends ARP, or looks for routers. */}}
{{- define "herald.raw" -}}
{{- $raw := eq (include "herald.services" .) "true" -}}
{{- range .Values.speaker.vips}}{{$raw = or $raw (eq (default "" .announce) "arp")}}{{end -}}
{{- range (default dict .Values.speaker.bgp).peers}}{{$raw = or $raw (hasKey . "interface")}}{{end -}}
{{- if $raw}}true{{end -}}
{{- end}}

{{/* The capabilities that the configuration needs, as in `herald manifest`. */}}
{{- define "herald.capabilities" -}}
{{- $bgp := default dict .Values.speaker.bgp -}}
{{- $election := default dict .Values.speaker.election -}}
{{- $ports := list (regexFind "[0-9]+$" (include "herald.metrics" .)) (regexFind "[0-9]+$" (default "" $election.bind)) -}}
{{- if kindIs "map" $bgp.listen -}}
{{- $ports = append $ports (default 179 $bgp.listen.port) -}}
{{- end -}}
{{- range .Values.speaker.balancers -}}
{{- if eq (default "" .mode) "proxy" -}}
{{- range .listen -}}
{{- $ports = append $ports (default (regexFind "[0-9]+$" (default "" .address)) .port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $low := false -}}
{{- range $ports -}}
{{- $low = or $low (and (gt (int .) 0) (lt (int .) 1024)) -}}
{{- end -}}
{{- if .Values.speaker.realtime}}IPC_LOCK, {{end}}NET_ADMIN{{if $low}}, NET_BIND_SERVICE{{end}}{{if include "herald.raw" .}}, NET_RAW{{end}}{{if .Values.speaker.realtime}}, SYS_NICE{{end}}
{{- end}}

{{/* The address of metrics and health: host:port; empty if they are off. */}}
{{- define "herald.metrics" -}}
{{- $metrics := default dict .Values.speaker.metrics -}}
{{- $listen := hasKey $metrics "listen" | ternary $metrics.listen "127.0.0.1:9474" -}}
{{- if $listen -}}
{{- $port := regexFind "[0-9]+$" $listen -}}
{{- $host := trimSuffix (printf ":%s" $port) $listen | trimPrefix "[" | trimSuffix "]" -}}
{{- has $host (list "" "0.0.0.0" "::" "localhost") | ternary "127.0.0.1" $host}} {{$port}}
{{- end -}}
{{- end}}

{{/* The time for a pod to end, as in `herald manifest`: 20 s plus the longest linger, in whole seconds. */}}
{{- define "herald.grace" -}}
{{- $grace := int64 .Values.terminationGracePeriodSeconds -}}
{{- range prepend (default list .Values.speaker.vips) (default dict .Values.speaker.services) -}}
{{- with .linger -}}
{{- $end := toDate "2006 -0700" "1970 +0000" | mustDateModify "20.999999999s" | mustDateModify . -}}
{{- $grace = max $grace (int64 (unixEpoch $end)) -}}
{{- end -}}
{{- end -}}
{{- $grace -}}
{{- end}}
