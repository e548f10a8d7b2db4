package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// Scenario is a world, the traffic in it, and the faults that happen to it.
type Scenario struct {
	Name    string
	Summary string // one line
	Doc     string // its assumptions, and the figures to look at

	Duration time.Duration // of the traffic, if Options.Duration is 0
	Warmup   time.Duration // at the beginning, left out of the figures per second
	Shape    Shape

	// Tune changes the default tuning, if the scenario is about certain values, for example a replay tick. It does not
	// change a tuning in Options.
	Tune func(*tuning.Tuning)

	// Namespace is the settings of the namespace of all requests: node share, mode, and so on. Its names may be empty. The
	// zero value sets nothing.
	Namespace store.NamespaceRow

	// SyncedEvery is the interval between two syncs of a key of normal pressure in the estimate mode, from which
	// Report.OriginReadsPerTickUntiered is computed; 0 for none.
	SyncedEvery time.Duration

	// LosesCost must be set if nodes are killed or data is wiped, so that cost may be lost. In other scenarios lost cost
	// is a violation.
	LosesCost bool

	// plan opens accounts, and returns the agenda of the traffic and the faults.
	plan func(w *world, duration time.Duration) agenda

	// fleet is set instead of plan if the world has relays and synthetic nodes.
	fleet *fleetPlan
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	return []Scenario{
		steadyScenario(), burstScenario(), surgeScenario(), smallScenario(), edgesScenario(), arrivalsScenario(),
		spreadScenario(), flashScenario(),
		rfcScenario("rfc", 1, 1, 2*time.Minute), rfcScenario("rfc10x", 10, 5, 75*time.Second),
		tiersScenario("tiers", tiersKeys, 0), tiersScenario("tiers-counting", tiersKeys, 1),
		replayScenario("replay-1ms", time.Millisecond,
			replayKeys), replayScenario("replay-10ms", 10*time.Millisecond, replayKeys),
		replayScenario("replay-50ms", 50*time.Millisecond, replayKeys),
		zipfScenario(), zipf10Scenario(), diurnalScenario(), rotationScenario(), twoNodesScenario(),
		hopScenario(), lateScenario(), silentScenario(), shortScenario(),
		partitionScenario(), shardsScenario(), crashScenario(), wipeScenario(), slowDatabaseScenario(), lossyScenario(),
		skewScenario(), clockAheadScenario(),
		relayHopScenario(), relaySilentScenario(), relayShortScenario(), relayPeersScenario(), relayWipeScenario(),
		relayKilledScenario(), relayHeldBackScenario(), relayPartitionScenario(),
		relayRFCScenario("relay-rfc", relayKeys, 1), relayRFCScenario("relay-rfc-330", relayKeys, 10),
		relayPairScenario(400_000), relayScaleScenario("relay-scale1", 1), relayScaleScenario("relay-scale10", 10),
		relayScaleScenario("relay-scale100", 100),
	}
}

// Lookup returns the scenario with the given name.
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
