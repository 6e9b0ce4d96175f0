package probe

// Outages returns the outages among attempts, which must be in the order of
// their starts.
func Outages(attempts []Attempt) []Outage {
	r := recorder{Result: Result{Outcomes: map[Outcome]int{}, Servers: map[string]int{}}}
	for _, a := range attempts {
		r.account(a)
	}
	return r.result(false).Outages
}
