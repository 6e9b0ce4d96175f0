package doctor

import (
	"github.com/herald-vip/herald/config"
	"github.com/herald-vip/herald/doctor/facts"
	"github.com/herald-vip/herald/health"
)

// examineChecks examines one probe of each check.
func examineChecks(c *config.Config, f *facts.Facts, out *findings) {
	for _, v := range f.Checks {
		switch {
		case v.State == health.Healthy && v.Warning == "":
			out.fine(v.Name, v.Reason)
		case v.State == health.Healthy:
			out.warning(v.Name, v.Warning, "It passes still.", "see the server, or the files of the check")
		case v.State == health.Unknown && v.Warning != "":
			out.warning(v.Name, v.Warning, withheld, "see why the server is that busy")
		case v.State == health.Unknown:
			out.warning(v.Name, "has not answered within the time of this examination", withheld, "try again; see the server")
		case f.Absent[v.Name] && len(f.Endpoints[v.Name].Chain) == 0:
			// Neither file nor server: as before kubeadm init or join, which make both.
			out.warning(v.Name, v.Reason, withheld, "nothing, if the file is made when the server is, as by kubeadm: Herald waits for both; otherwise correct the path")
		case v.OwnFault:
			out.blocker(v.Name, v.Reason, "The fault is this node's, not the server's: the check cannot pass.", "correct the file that it names")
		default:
			out.warning(v.Name, v.Reason, withheld, "start or mend the server; Herald waits for it")
		}
	}
}

const withheld = "The VIP is not announced from this node while it fails."
