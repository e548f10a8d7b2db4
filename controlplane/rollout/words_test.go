package rollout

import (
	"testing"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/settings"
)

// A node that does not run a trial of limits decides by the stored limits, and has no version of them. Counts of one
// are singular, and limits are written as weirctl writes them.
func TestWordsOfARollout(t *testing.T) {
	trial := Touched{Trial: 13}
	was := settings.Override{Workspace: "acme", Namespace: "api", Pattern: "u", Limit: 1200}
	is := was
	is.Limit, is.Shadow = 2_000_000, true
	for got, want := range map[string]string{
		trial.lag(fleet.NodeFigures{}, ""):             "the stored limits, not trial 13",
		trial.lag(fleet.NodeFigures{Trial: 12}, ""):    "trial 12, not trial 13",
		trial.lag(fleet.NodeFigures{Version: 2}, "h"):  "version 2, not trial 13",
		Applied{Live: 1, Waiting: "x runs y"}.String(): "0 of 1 live node has applied it; x runs y",
		Applied{Live: 2, Waiting: "x runs y"}.String(): "0 of 2 live nodes have applied it; x runs y",
		Differences(settings.Change{Overrides: []settings.OverrideChange{{Before: &was, After: &is}}}): "override " +
			"acme/api/u is limit 2,000,000, shadow true, not limit 1,200, shadow false",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
