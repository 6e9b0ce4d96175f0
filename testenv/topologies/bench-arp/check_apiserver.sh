#!/bin/sh
# The check of kubeadm's documentation, for the stub's plain HTTP.
curl -sfk --max-time 2 http://127.0.0.1:6443/livez -o /dev/null || {
	echo '*** Error GET http://127.0.0.1:6443/livez' >&2
	exit 1
}
