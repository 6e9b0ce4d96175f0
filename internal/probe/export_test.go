package probe

// Outages returns the outages among attempts, which must be in the order of
// their starts. It is what Run applies to a whole run.
func Outages(attempts []Attempt) []Outage {
	var (
		t       tracker
		outages []Outage
	)
	for _, a := range attempts {
		if o := t.observe(a); o != nil && !o.Ongoing {
			outages = append(outages, *o)
		}
	}
	if t.open != nil {
		outages = append(outages, *t.open.clone())
	}
	return outages
}
