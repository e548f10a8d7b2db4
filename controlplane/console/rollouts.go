package console

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func (c rolloutPages) rolloutsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	list, err := apiclient.Ask(v.ctx, c.backend.Rollouts.ListRollouts, &controlv1.ListRolloutsRequest{})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	c.render(w, r, v, http.StatusOK, "rollouts", "Rollouts", list.GetRollouts())
}

// rolloutView is a rollout as its page shows it.
type rolloutView struct {
	*controlv1.Rollout
	Words  string // the phase, in words
	Over   bool
	Stored bool // the new limits are stored, and have not been rolled back
	Paused bool
	Due    time.Duration // until the phase ends; 0: unknown
	Rails  []rail
	Can    []can
	Tuning []tuned
	Change changeView // of a rollout of limits
}

// can is an action that an operator can take in the rollout's phase.
type can struct{ Do, Label, Ask string }

// rail is a guardrail: the figure before the stage, the figure now, and the bound above which the rollout is rolled
// back.
type rail struct {
	Name, Unit       string
	Was, Now, Most   float64
	HasWas, HasNow   bool
	Off, Broken      bool
	Where, Margin    string // the region and the node, and the margin to the bound; empty: unknown
	WasAt, NowAt, At int    // places on a drawing 300 wide, on which Most is at 240
}

func (c rolloutPages) rolloutPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.showRollout(w, r, v, http.StatusOK, "")
}

func (c rolloutPages) showRollout(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string) {
	found, err := apiclient.Ask(v.ctx, c.backend.Rollouts.RolloutStatus,
		&controlv1.RolloutStatusRequest{Id: r.PathValue("id")})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page := describeRollout(found.GetRollout(), time.Now())
	c.renderWith(w, r, v, code, "rollout", "Rollout "+page.GetId(), problem, page)
}

func (c rolloutPages) operateRollout(w http.ResponseWriter, r *http.Request, v *viewer) {
	do, id := r.PostForm.Get("do"), r.PathValue("id")
	msg := &controlv1.OperateRolloutRequest{Id: id, Action: rolloutActions[do]}
	msg.Actor, msg.Reason = c.by(w, r, v)
	if do == "approve" { // of the page that the operator saw; the API rejects values of another stage, and missing values
		msg.Stage, _ = typedInt32(r.PostForm.Get("stage"))
		msg.Asked, _ = typedInt(r.PostForm.Get("asked"))
		msg.Evidence = r.PostForm.Get("evidence")
	}
	if _, err := apiclient.Ask(v.ctx, c.backend.Rollouts.OperateRollout, msg); err != nil {
		c.showRollout(w, r, v, status(err), apiclient.Words(err))
		return
	}
	done(w, r, "/console/rollouts/at/"+id, "rollout."+do, nil)
}

// phases describe each phase.
var phases = map[string]string{
	"awaiting_approval": "Waits for a person to approve the stage.",
	"measuring":         "Measures the baseline: the health of the stage's nodes before they get the tuning.",
	"applying":          "Applies the tuning to the stage's regions as a trial.",
	"converging":        "Waits until every live node of the stage runs it.",
	"baking":            "Bakes: health is compared with the baseline.",
	"keeping":           "Has stored the tuning permanently, and waits until every live node reports it.",
	"rolling_back":      "Rolls the tuning back, and waits until no live node runs it.",
	"done":              "Done: every live node of its regions runs it.",
	"rolled_back":       "Rolled back: no live node runs it any more.",
	"aborted":           "Aborted, and rolled back where it had been applied.",
	"lost":              "Lost: MySQL has a record of its start, but neither MySQL nor Restate has its state.",
}

// limitPhases describe the phases of a rollout of limits that differ.
var limitPhases = map[string]string{
	"measuring":    "Measures the baseline: the health of the stage's nodes before they get the new limits.",
	"applying":     "Applies the new limits to the stage's regions as a trial.",
	"keeping":      "Has stored the new limits, and waits until every live node has them.",
	"rolling_back": "Rolls the new limits back, and waits until no live node decides by them.",
	"done":         "Done: the new limits are stored, and every live node decides by them.",
	"rolled_back":  "Rolled back: no live node decides by the new limits any more.",
	"aborted":      "Aborted, and rolled back where they had been applied.",
}

func describeRollout(r *controlv1.Rollout, now time.Time) rolloutView {
	v := rolloutView{Rollout: r, Words: phases[r.GetPhase()], Over: r.GetEndedAtMs() > 0, Paused: r.GetPausedBy() != ""}
	if of := limitPhases[r.GetPhase()]; of != "" && r.GetLimits() != nil {
		v.Words = of
	}
	if v.Words == "" {
		v.Words = r.GetPhase()
	}
	if due := r.GetDueAtMs(); due > 0 && !v.Over {
		v.Due = max(0, time.UnixMilli(due).Sub(now).Round(time.Second))
	}
	v.Stored = r.GetLimits() != nil && (r.GetPhase() == "keeping" || r.GetPhase() == "done")
	v.Rails = rails(r)
	v.Can = v.can()
	if r.GetLimits() == nil {
		v.Tuning = tunedFrom(r.GetTuning())
	} else {
		v.Change = words.Lines(limitchange.Of(r.GetLimits()))
	}
	return v
}

// can returns the actions that an operator can take in the rollout's phase, the likeliest first.
func (v *rolloutView) can() (list []can) {
	approve := can{"approve", "Approve stage " + fmt.Sprint(v.GetStage()),
		"The stage begins with its baseline as soon as it has all its approvals."}
	pause := can{"pause", "Pause",
		"The rollout stays where it is. Guardrails stay in force. After a resume the measurements of the phase begin again."}
	resume := can{"resume", "Resume", "The phase that was paused begins again."}
	abort := can{"abort", "!Abort", "Ends the rollout and rolls back what it has applied."}
	switch {
	case v.GetPhase() == "done":
		back := "Every region returns to its previous tuning."
		if v.GetLimits() != nil {
			back = "Everything that the rollout changed returns to its state before, at once. Nothing else changes."
		}
		return []can{{"rollback", "!Roll back", back + " Possible until a later rollout is done."}}
	case v.GetPhase() == "rolling_back" && v.GetTrouble() != "":
		return []can{{"abort", "!Give up late nodes",
			"Ends the rollback while they still run what was taken back."}}
	case v.Over, v.GetPhase() == "rolling_back":
		return nil
	case v.Paused:
		return []can{resume, abort}
	case v.GetPhase() == "awaiting_approval":
		return []can{approve, pause, abort}
	}
	return []can{pause, abort}
}

// railWords are the guardrails' names and units.
var railWords = map[string][2]string{
	"errors_per_minute":  {"Errors of relays and settings", "a node and minute"},
	"rows_per_second":    {"MySQL rows", "a region and second"},
	"degraded_share":     {"Decisions without Redis", "of all"},
	"convergence_ms":     {"Convergence delay", "ms, slowest relay"},
	"latency_us":         {"Decision latency", "µs, slowest node"},
	"denied_share_shift": {"Denied decisions", "of all, either way"},
	"nodes_lost_share":   {"Nodes without heartbeats", "of a region's"},
	"restarts_per_hour":  {"Restarts", "of a node within an hour"},
	"dropped_cost":       {"Dropped accepted cost", "of a node"},

	"newly_denied_share":   {"Newly denied decisions", "of those that the limits change"},
	"newly_denied_callers": {"Newly denied callers", "of a region"},
	"protected":            {"Newly denied decisions of protected callers", ""},

	"rows_against_control":     {"MySQL rows a decision, against regions without the tuning", "times"},
	"denied_against_control":   {"Denied decisions, against regions without the tuning", "of all, more"},
	"allowed_against_control":  {"Allowed decisions, against regions without the tuning", "of all, more"},
	"degraded_against_control": {"Decisions without Redis, against regions without the tuning", "of all, more"},
	"errors_against_control":   {"Errors, against regions without the tuning", "a node and minute, more"},
}

// rails returns the guardrails, each for the region and node that is nearest to the bound.
func rails(r *controlv1.Rollout) (out []rail) {
	for _, of := range r.GetRails() {
		words, known := railWords[of.GetField()]
		if !known { // of a newer build
			words = [2]string{of.GetField(), ""}
		}
		one := rail{Name: words[0], Unit: words[1], Off: of.Most == nil, Most: of.GetMost(), Where: of.GetRegion(),
			Broken: of.Margin != nil && of.GetMargin() < 0}
		if of.GetNode() != "" {
			one.Where += ", node " + of.GetNode()
		}
		if of.Margin != nil {
			one.Margin = percent(of.GetMargin())
		}
		one.put(of.Before, of.Now)
		one.place()
		out = append(out, one)
	}
	return out
}

func (r *rail) put(was, now *float64) {
	if was != nil {
		r.Was, r.HasWas = *was, true
	}
	if now != nil {
		r.Now, r.HasNow = *now, true
	}
}

// place computes the positions on the drawing.
func (r *rail) place() {
	const width, end = 300, 240
	at := func(v float64) int {
		if r.Most <= 0 {
			return 0
		}
		return int(min(width, max(0, v/r.Most*end)))
	}
	r.WasAt, r.NowAt, r.At = at(r.Was), at(r.Now), end
}

// Heard returns the number of nodes whose figures are included.
func (v rolloutView) Heard() int { return int(v.GetNow().GetNodes()) }
