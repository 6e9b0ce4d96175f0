package yaml

import "strings"

// Closest returns the candidate that is most similar to name; empty if all differ too much.
func Closest(name string, candidates []string) string {
	if len(name) > 64 || len(candidates) > 100 {
		return "" // takes too long
	}
	best, bestDistance := "", max(len(name)/3, 1)+1
	for _, c := range candidates {
		if strings.EqualFold(name, c) {
			return c
		}
		if d := distance(name, c); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	for _, c := range candidates {
		if best == "" && len(name) >= 4 && strings.HasPrefix(c, name) {
			best = c
		}
	}
	return best
}

// distance returns the Damerau-Levenshtein distance of a and b in bytes (optimal string alignment): insertions,
// deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	d := make([][]int, len(a)+1) // d[i][j] is the distance of a[:i] and b[:j]
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			same := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				same++
			}
			d[i][j] = min(same, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
