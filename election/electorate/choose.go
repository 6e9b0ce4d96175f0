package electorate

import "slices"

// most is how many members vote where they come and go by themselves. The rest stand by.
const most = 7

// Choose is the electorate with other members, where these come and go by themselves: the voters that do not leave, and of
// those that may join the first, as many as are odd. One more than that would have to be heard for a majority, and help
// nobody. A voter leaves as soon as that leaves an odd number.
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
