package pool_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/herald-vip/herald/service/pool"
	"github.com/herald-vip/herald/testenv/must"
)

// crowds make the i-th of many claims, each a worst case.
var crowds = map[string]func(i int) pool.Claim{
	"alone": func(int) pool.Claim { return pool.Claim{Families: dual} },
	"sharing one address": func(i int) pool.Claim {
		return pool.Claim{Families: dual, Share: "x", Ports: []pool.Port{{Protocol: fmt.Sprint(i >> 16), Number: uint16(i)}}}
	},
	"sharing in tens": func(i int) pool.Claim {
		return pool.Claim{Families: dual, Share: fmt.Sprint(i / 10), Ports: tcp(uint16(i % 10))}
	},
	"one key and port for everyone": func(int) pool.Claim { return pool.Claim{Families: dual, Share: "x", Ports: tcp(443)} },
}

// crowd returns an allocator with n claims and as many gaps between them.
func crowd(n int, makeClaim func(i int) pool.Claim) (*pool.Allocator, []pool.Claim, error) {
	a := pool.New()
	if err := a.Replace(large()); err != nil {
		return nil, nil, err
	}
	claims := make([]pool.Claim, 2*n)
	for i := range claims {
		claims[i] = makeClaim(i)
		claims[i].Key = fmt.Sprint("default/service-", i)
		if _, err := a.Assign(claims[i]); err != nil {
			return nil, nil, err
		}
	}
	for i := 0; i < len(claims); i += 2 {
		a.Release(claims[i].Key)
	}
	return a, claims, nil
}

func large() []pool.Pool {
	return []pool.Pool{{Name: "large", AutoAssign: true, AvoidBuggyIPs: true, Ranges: newPool("", "10.0.0.0/8", "fd00::/64").Ranges}}
}

// TestSteps counts the steps of operations among 100 and 100² claims: a logarithmic
// cost at most doubles.
func TestSteps(t *testing.T) {
	for name, makeClaim := range crowds {
		t.Run(name, func(t *testing.T) {
			worst := make(map[int]int)
			for _, n := range []int{100, 10_000} {
				a, claims, err := crowd(n, makeClaim)
				if err != nil {
					t.Fatal(err)
				}
				random := rand.New(rand.NewPCG(1, 2))
				for range 1000 {
					c := claims[random.IntN(len(claims))]
					before := a.Steps()
					if _, err := a.Assign(c); err != nil {
						t.Fatal(err)
					}
					assigned := a.Steps()
					if random.IntN(2) == 0 {
						a.Release(c.Key)
					}
					worst[n] = max(worst[n], assigned-before, a.Steps()-assigned)
				}
			}
			t.Logf("steps at most: %v", worst)
			if worst[10_000] > 2*worst[100] {
				t.Errorf("%d steps among 100 claims and %d among 10,000: the cost grows with the number of claims", worst[100], worst[10_000])
			}
		})
	}
}

// BenchmarkAssign releases one of n claims and assigns it anew.
func BenchmarkAssign(b *testing.B) {
	for _, name := range []string{"alone", "sharing in tens", "one key and port for everyone"} {
		for _, n := range []int{100, 1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				a, claims, err := crowd(n, crowds[name])
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c := claims[i%len(claims)]
					a.Release(c.Key)
					if _, err := a.Assign(c); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkReplace replaces the pools of 10,000 claims by the same pools.
func BenchmarkReplace(b *testing.B) {
	a, _, err := crowd(10_000, crowds["alone"])
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		must.Do(b, a.Replace(large()))
	}
}
