package electorate

import "slices"

// most is the maximum number of voters of an open electorate. Other members stand by.
const most = 7

// Choose returns an open electorate with other members: the voters that do not leave, and the first candidates of join
// that make an odd number. An even voter would raise the majority and add no tolerance. A voter leaves once that makes
// an odd number.
func (e Electorate) Choose(leave, join []string) Electorate {
	fits := func(members []string) bool {
		e.Members = slices.Sorted(slices.Values(members))
		return len(members) <= most && e.Validate() == nil
	}
	stay := slices.DeleteFunc(slices.Clone(e.Members), func(name string) bool { return slices.Contains(leave, name) })
	voters := slices.Concat(stay, join)
	for len(voters) > len(stay) && !fits(voters) {
		voters = voters[:len(voters)-1]
	}
	switch {
	case len(voters)%2 == 1:
	case len(voters) > len(stay):
		voters = voters[:len(voters)-1]
	case len(leave) > 0:
		voters = append(voters, leave[0])
	}
	e.Members = slices.Sorted(slices.Values(voters))
	return e
}
