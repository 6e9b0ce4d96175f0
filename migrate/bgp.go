package migrate

import (
	"github.com/herald-vip/herald/api/v1alpha1"
	"github.com/herald-vip/herald/internal/yaml"
)

// ASN parses the number of an autonomous system for the field at path. An invalid one is 0 and left to be filled in.
func (d *Draft) ASN(path yaml.Path, s Setting) uint32 {
	n, err := v1alpha1.ParseASN(s.Value)
	if err != nil {
		d.Leave(path, s.Line, "an autonomous system: "+Quoted(s.Value)+" is not one", "asn: ASN")
		return 0
	}
	d.Origins[path] = s.Line
	return uint32(n)
}

// LeavePassword sets the password file of the peer at path and asks the user to write it.
func (d *Draft) LeavePassword(p *v1alpha1.Peer, path yaml.Path, line int, subject string) {
	p.PasswordFile = "/etc/herald/bgp-" + DNSName(p.Name(), "peer") + ".password"
	d.Comment(path+".passwordFile", "Write the peer's password into it, mode 0600.")
	d.ToDo(line, subject, "write the password of %s into %s, mode 0600: it is not printed here", p.Name(), p.PasswordFile)
}
