// Package limitwords describes an estimate of limits in sentences, which weirctl and the console share.
package limitwords

import (
	"fmt"
	"strings"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// keysNamed are the keys that a sentence names at most.
const keysNamed = 3

// Say describes the basis and the outcome of an estimate of so many overrides. Names are as callers sent them. count
// writes the figures.
func Say(e *controlv1.EstimateLimitsResponse, overrides int, count func(int64) string) string {
	plural := func(n int64, thing string) string {
		if n == 1 {
			return "1 " + thing
		}
		return count(n) + " " + thing + "s"
	}
	under, these := "this override", "it"
	if overrides != 1 {
		under, these = "these overrides", "these"
	}
	switch {
	case e.GetNodes() == 0:
		return Unknown(overrides, "no live node has reported its busiest keys")
	case e.GetKeysReported() == 0:
		return Unknown(overrides, plural(int64(e.GetNodes()), "live node")+" reported no busy key")
	}
	said := fmt.Sprintf("of the %s that %s reported, %s under %s", plural(e.GetKeysReported(), "busiest key"),
		plural(int64(e.GetNodes()), "node"), count(e.GetKeysMatched()), under)
	if e.GetTruncated() {
		said = "of a part of " + strings.TrimPrefix(said, "of ")
	}
	if unknown := e.GetKeysUnknown(); unknown > 0 {
		said += fmt.Sprintf(" (%s of them unknown: another window, or the caller's limit)", count(unknown))
	}
	if e.GetKeysMatched() <= e.GetKeysUnknown() {
		return said
	}
	share := 0.0
	if e.GetCost() > 0 {
		share = 100 * float64(e.GetCostDenied()) / float64(e.GetCost())
	}
	said += fmt.Sprintf("; in the window under way %s would have denied %.1f %% of their cost, of %s", these, share,
		plural(e.GetKeysDenied(), "key"))
	var worst []string
	for _, k := range e.GetWorst()[:min(len(e.GetWorst()), keysNamed)] {
		worst = append(worst, fmt.Sprintf("%s/%s/%s has %s of %s", k.GetWorkspace(), k.GetNamespace(), k.GetIdentifier(),
			count(k.GetCost()), count(k.GetLimit())))
	}
	if len(worst) > 0 {
		said += ": " + strings.Join(worst, ", ")
	}
	return said
}

// Unknown describes why there is no estimate.
func Unknown(overrides int, why string) string {
	what := "this change"
	if overrides != 1 {
		what = "the overrides"
	}
	return "the effect of " + what + " is unknown: " + why
}
