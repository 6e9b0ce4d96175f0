package pool_test

import (
	"fmt"
	"net/netip"

	"github.com/herald-vip/herald/service/pool"
)

// After a restart the allocator adopts stored addresses before it assigns new ones.
func Example() {
	addresses, err := pool.ParseRange("10.1.0.0/24")
	if err != nil {
		fmt.Println(err)
		return
	}
	a := pool.New()
	if err := a.Replace([]pool.Pool{{Name: "public", Ranges: []pool.Range{addresses}, AutoAssign: true}}); err != nil {
		fmt.Println(err)
		return
	}
	old := pool.Claim{Key: "default/old", Families: []pool.Family{pool.IPv4}}
	if err := a.Adopt(old, []netip.Addr{netip.MustParseAddr("10.1.0.0")}); err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(a.Assign(pool.Claim{Key: "default/new", Families: []pool.Family{pool.IPv4}}))
	fmt.Println(a.Assign(old))
	old.Addresses = []netip.Addr{netip.MustParseAddr("10.1.0.1")}
	fmt.Println(a.Assign(old))
	// Output:
	// [10.1.0.1] <nil>
	// [10.1.0.0] <nil>
	// [10.1.0.0] 10.1.0.1 belongs to default/new: ask for another address, or give both the same sharing key
}
