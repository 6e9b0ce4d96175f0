package doctor

import (
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/health"
)

// examineChecks reports the result of one probe of each check.
func examineChecks(c *config.Config, f *facts.Facts, out *findings) {
	for _, v := range f.Checks {
		switch {
		case v.State == health.Healthy && v.Warning == "":
			out.fine(v.Name, v.Reason)
		case v.State == health.Healthy:
			out.warning(v.Name, v.Warning, "The check still passes.", "see the server, or the files of the check")
		case v.State == health.Unknown && v.Warning != "":
			out.warning(v.Name, v.Warning, withheld, "find the load on the server")
		case v.State == health.Unknown:
			out.warning(v.Name, "no answer during this examination", withheld, "try again; check the server")
		case f.Absent[v.Name] && len(f.Endpoints[v.Name].Chain) == 0:
			// Neither file nor server exists yet, as before kubeadm init or join.
			out.warning(v.Name, v.Reason, withheld, "nothing, if the file is created with the server, as by kubeadm: Herald waits for both; otherwise correct the path")
		case v.OwnFault:
			out.blocker(v.Name, v.Reason, "The fault is on this node, not in the server: the check cannot pass.", "correct the file that it names")
		default:
			out.warning(v.Name, v.Reason, withheld, "start or repair the server; Herald waits for it")
		}
	}
}

const withheld = "The VIP is not announced from this node while it fails."
