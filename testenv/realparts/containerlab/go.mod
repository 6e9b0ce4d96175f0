// The containerlab that `make containerlab` deploys the topologies with.
module github.com/herald-vip/herald/testenv/realparts/containerlab

go 1.26.0

require github.com/srl-labs/containerlab v0.79.0
