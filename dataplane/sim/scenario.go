package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// Scenario is a world, who sends requests in it, and what befalls it.
type Scenario struct {
	Name    string
	Summary string // one line
	Doc     string // what is assumed, and what to look at

	Duration time.Duration // of the traffic, unless told otherwise
	Warmup   time.Duration // at the beginning, left out of the figures a second
	Shape    Shape

	// Tune changes the default tuning where the scenario is about certain values; a
	// tuning that was asked for is taken as it is.
	Tune func(*tuning.Tuning)

	// Namespace is what is set for the namespace that all requests are in, whose names
	// need not be filled in: node share, mode, knobs. The zero value sets nothing.
	Namespace store.NamespaceRow

	// SyncedEvery is the interval between two syncs of a key of normal pressure in the
	// estimate mode, for the arithmetic of Report.OriginReadsPerTickUntiered; 0 for none.
	SyncedEvery time.Duration

	// LosesCost is true where nodes are killed or data is wiped: there cost may be lost,
	// and elsewhere that is a violation.
	LosesCost bool

	// plan opens accounts and returns who acts when.
	plan func(w *world, duration time.Duration) agenda

	// fleet is set instead of plan where the world is one of relays and synthetic nodes.
	fleet *fleetPlan
}

// Scenarios lists all of them.
func Scenarios() []Scenario {
	return []Scenario{
		steadyScenario(), burstScenario("burst", nodeShareFlush), burstScenario("burst-wait", nodeShareWait),
		surgeScenario("surge", nodeShareFlush), surgeScenario("surge-wait", nodeShareWait), spreadScenario(),
		flashScenario(),
		rfcScenario("rfc", 1, 1, 2*time.Minute), rfcScenario("rfc10x", 10, 5, 75*time.Second),
		tiersScenario("tiers", tiersKeys, 0), tiersScenario("tiers-counting", tiersKeys, 1),
		replayScenario("replay-1ms", time.Millisecond,
			replayKeys), replayScenario("replay-10ms", 10*time.Millisecond, replayKeys),
		replayScenario("replay-50ms", 50*time.Millisecond, replayKeys),
		zipfScenario(), zipf10Scenario(), diurnalScenario(), rotationScenario(), twoNodesScenario(),
		hopScenario(), lateScenario(), silentScenario(), shortScenario(),
		partitionScenario(), shardsScenario(), crashScenario(), wipeScenario(), slowDatabaseScenario(), lossyScenario(),
		skewScenario(),
		relayHopScenario(), relaySilentScenario(), relayShortScenario(), relayPeersScenario(), relayWipeScenario(),
		relayKilledScenario(), relayHeldBackScenario(), relayPartitionScenario(),
		relayRFCScenario("relay-rfc", relayKeys, 1), relayRFCScenario("relay-rfc-330", relayKeys, 10),
		relayPairScenario(400_000), relayScaleScenario("relay-scale1", 1), relayScaleScenario("relay-scale10", 10),
		relayScaleScenario("relay-scale100", 100),
	}
}

// Lookup finds a scenario by its name.
func Lookup(name string) (Scenario, error) {
	var names []string
	for _, s := range Scenarios() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Scenario{}, fmt.Errorf("%w: scenario %q is unknown (%s)", ErrInvalid, name, strings.Join(names, ", "))
}
