package bench

import (
	"fmt"
	"math"
)

// BalancerTarget is something that is wanted of Herald as a balancer, and what came of it
// in a run.
type BalancerTarget struct {
	Measure, Path string
	// Wanted and Measured say it in words; Met says whether the one is as good as the other.
	Wanted, Measured string
	Met              bool
}

// Targets compares Herald with what is wanted of it. What was not measured is left out.
func (r *BalancerResults) Targets() (list []BalancerTarget) {
	add := func(measure, path, wanted, measured string, met bool) {
		list = append(list, BalancerTarget{measure, path, wanted, measured, met})
	}
	for _, path := range []string{local, remote} {
		if f, ok := r.find(viaHerald, Spread, path); ok {
			add("spread of connections", path, "each within 5 % of a third", f.text(), f.uneven() <= 0.05)
		}
	}
	for _, path := range []string{local, remote} {
		own, ok := r.own(viaHerald, ConnectionCPU, path)
		rival, also := r.own(viaHAProxy, ConnectionCPU, path)
		if ok && also {
			add("new connections for each second of the balancer's CPU", path, "≥ 3 × HAProxy's",
				fmt.Sprintf("%s × : %s and %s of its own for each", ratioOf(rival, own), microseconds(own), microseconds(rival)), rival >= 3*own)
		}
		for _, straight := range r.withoutBalancer(FixedP99, path) {
			if through, ok := r.find(viaHerald, FixedP99, path); ok {
				ratio := through.over(straight)
				add("latency at 1,000 connections/s, p99", path, "≤ 1.1 × "+r.beside(straight), times(ratio)+" : "+through.text(),
					ratio.median() <= 1.1)
			}
		}
		for _, m := range []struct {
			streams         string
			throughput, cpu BalancerMeasure
		}{{"1 stream", Throughput1, GigabyteCPU1}, {"8 streams", Throughput8, GigabyteCPU8}} {
			for _, straight := range r.withoutBalancer(m.throughput, path) {
				if through, ok := r.find(viaHerald, m.throughput, path); ok {
					ratio := through.over(straight)
					add("throughput, "+m.streams, path, "≥ 0.95 × "+r.beside(straight), times(ratio)+" : "+through.text(),
						ratio.median() >= 0.95)
				}
			}
			own, ok := r.own(viaHerald, m.cpu, path)
			rival, also := r.ownOfRival(m.cpu, path)
			if ok && also {
				add("the balancer's CPU for 10^9 bytes, "+m.streams, path, "≤ ¼ of HAProxy's: "+milliseconds(rival), milliseconds(own), own <= rival/4)
			}
		}
	}
	atMost := func(name string, m BalancerMeasure, limit float64) {
		if f, ok := r.find(viaHerald, m, ""); ok {
			u := m.unit()
			add(name, "", "≤ "+fmt.Sprintf(u.format, limit*u.factor)+u.name, f.text(), f.median() <= limit)
		}
	}
	none := func(name string, m BalancerMeasure, word string) {
		if f, ok := r.find(viaHerald, m, ""); ok {
			wrong, all := f.wrong()
			add(name, "", "0 "+word, f.text(), wrong == 0 && all > 0)
		}
	}
	atMost("server killed: from its speaker's notice until out", KilledTold, 0.05)
	none("server killed: connections to others", KilledOthers, "failed")
	atMost("host vanished: until out", VanishedOut, defaultLease.Seconds())
	none("host vanished: connections to others", VanishedOthers, "failed")
	none("server drained and added: new connections", DrainedFailed, "failed")
	none("server drained and added: established connections", DrainedLost, "lost")
	atMost("master joins: until all follow", Joined, 1)
	atMost("master leaves: until all follow", Left, 1)
	atMost("master dies for good: until all follow", Died, 1)
	none("master joins: connections", JoinedFailed, "failed")
	none("master leaves: connections", LeftFailed, "failed")
	none("Herald restarted: established connections", RestartLost, "lost")
	none("Herald killed and started: established connections", CrashLost, "lost")
	none("Herald upgraded: established connections", UpgradeLost, "lost")
	none("internal to external and back: established connections", ExternalLost, "lost")
	return list
}

// uneven is by how much the share of one is off an even one, of that.
func (f BalancerFigure) uneven() (most float64) {
	sum := 0.
	for _, v := range f.Values {
		sum += v
	}
	even := sum / float64(len(f.Values))
	for _, v := range f.Values {
		most = max(most, math.Abs(v-even)/even)
	}
	return most
}

// withoutBalancer is what was measured without a balancer: directly and, remotely, by way of a
// machine that only forwards.
func (r *BalancerResults) withoutBalancer(m BalancerMeasure, path string) (list []BalancerFigure) {
	for _, name := range []string{direct, forwarded} {
		if f, ok := r.find(name, m, path); ok {
			list = append(list, f)
		}
	}
	return list
}

// over is the ratio to another way, round by round: what else the machine did in a round
// it did to both.
func (f BalancerFigure) over(other BalancerFigure) Measurement {
	var ratio Measurement
	for i := range min(len(f.Values), len(other.Values)) {
		ratio.Values = append(ratio.Values, f.Values[i]/other.Values[i])
	}
	return ratio
}

// beside tells of a way without a balancer; of the direct one, what it was a second time.
func (r *BalancerResults) beside(straight BalancerFigure) string {
	text := straight.Balancer + ": " + straight.text()
	if again, ok := r.find(directAgain, straight.Measure, straight.Path); ok && straight.Balancer == direct {
		text += "; again: " + times(again.over(straight))
	}
	return text
}

// times writes a ratio for people.
func times(ratio Measurement) string {
	if len(ratio.Values) == 1 {
		return fmt.Sprintf("%.2f ×", ratio.median())
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f) ×", ratio.median(), ratio.least(), ratio.most())
}

// own is what of a cost is the balancer's own: what it takes through it, less what it
// takes without: on its own machine directly, on another by way of a machine that only
// forwards. Below the resolution it is none.
func (r *BalancerResults) own(balancer string, m BalancerMeasure, path string) (float64, bool) {
	through, ok := r.find(balancer, m, path)
	straight, also := r.find(without(path), m, path)
	if !ok || !also {
		return 0, false
	}
	return max(0, through.median()-straight.median()), true
}

// without is the way of a path that has all that the others have, but a balancer.
func without(path string) string {
	if path == remote {
		return forwarded
	}
	return direct
}

// ownOfRival is HAProxy's own cost, with splicing or without, whichever is less.
func (r *BalancerResults) ownOfRival(m BalancerMeasure, path string) (float64, bool) {
	plain, ok := r.own(viaHAProxy, m, path)
	spliced, also := r.own(viaHAProxySpl, m, path)
	if also {
		plain = min(plain, spliced)
	}
	return plain, ok
}

func ratioOf(a, b float64) string {
	if b == 0 {
		return "∞"
	}
	return fmt.Sprintf("%.1f", a/b)
}

func microseconds(seconds float64) string { return fmt.Sprintf("%.0f µs", seconds*1e6) }
func milliseconds(seconds float64) string { return fmt.Sprintf("%.0f ms", seconds*1e3) }
