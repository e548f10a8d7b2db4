package console

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

func (c *Console) rolloutsPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	list, err := ask(v.ctx, c.backend.rollouts.ListRollouts, &controlv1.ListRolloutsRequest{})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	c.render(w, r, v, http.StatusOK, "rollouts", "Rollouts", list.GetRollouts())
}

// rolloutView is a rollout as its page draws it.
type rolloutView struct {
	*controlv1.Rollout
	Words  string // the phase, in words
	Over   bool
	Paused bool
	Due    time.Duration // until the phase is over, 0: not known
	Rails  []rail
	Can    []can
	Tuning []tuned
}

// can is something that may be done with a rollout as it stands.
type can struct{ Do, Label, Ask string }

// rail is a guardrail: what was before the stage, what is now, and from where on the
// rollout is taken back.
type rail struct {
	Name, Unit       string
	Was, Now, Most   float64
	HasWas, HasNow   bool
	Off, Broken      bool
	WasAt, NowAt, At int // places on a drawing 300 wide, on which Most is at 240
}

func (c *Console) rolloutPage(w http.ResponseWriter, r *http.Request, v *viewer) {
	c.showRollout(w, r, v, http.StatusOK, "")
}

func (c *Console) showRollout(w http.ResponseWriter, r *http.Request, v *viewer, code int, problem string) {
	found, err := ask(v.ctx, c.backend.rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: r.PathValue("id")})
	if err != nil {
		c.broken(w, r, v, err)
		return
	}
	page := describeRollout(found.GetRollout(), time.Now())
	c.renderWith(w, r, v, code, "rollout", "Rollout "+page.GetId(), problem, page)
}

func (c *Console) operateRollout(w http.ResponseWriter, r *http.Request, v *viewer) {
	do, id := r.PostForm.Get("do"), r.PathValue("id")
	msg := &controlv1.OperateRolloutRequest{Id: id, Action: rolloutActions[do]}
	msg.Actor, msg.Reason = c.by(w, r, v)
	if do == "approve" { // what the page showed; the API refuses what it is not, and none at all
		stage, _ := strconv.ParseInt(r.PostForm.Get("stage"), 10, 32)
		msg.Stage = int32(stage)
		msg.Asked, _ = strconv.ParseInt(r.PostForm.Get("asked"), 10, 64)
	}
	if _, err := ask(v.ctx, c.backend.rollouts.OperateRollout, msg); err != nil {
		c.showRollout(w, r, v, status(err), words(err))
		return
	}
	done(w, r, "/console/rollouts/at/"+id, "rollout."+do, nil)
}

// phases say what each phase means to somebody who looks at it.
var phases = map[string]string{
	"awaiting_approval": "Waits for a person to approve the stage.",
	"measuring":         "Takes the baseline: how the stage's nodes do before they get the tuning.",
	"applying":          "Writes the tuning for the stage's regions.",
	"converging":        "Waits until every live node of the stage runs it.",
	"baking":            "Bakes: health is held against the baseline.",
	"rolling_back": "Takes the tuning back, region by region, the last one first, and waits until no live node " +
		"runs it.",
	"done":        "Done: every live node of its regions runs it.",
	"rolled_back": "Rolled back: no live node runs it any more.",
	"aborted":     "Given up, and taken back where it had been applied.",
	"lost":        "Lost: MySQL knows that it began, and Restate has no state of it.",
}

func describeRollout(r *controlv1.Rollout, now time.Time) rolloutView {
	v := rolloutView{Rollout: r, Words: phases[r.GetPhase()], Over: r.GetEndedAtMs() > 0, Paused: r.GetPausedBy() != ""}
	if v.Words == "" {
		v.Words = r.GetPhase()
	}
	if due := r.GetDueAtMs(); due > 0 && !v.Over {
		v.Due = max(0, time.UnixMilli(due).Sub(now).Round(time.Second))
	}
	v.Rails = rails(r)
	v.Can = v.can()
	v.Tuning = tunedFrom(r.GetTuning())
	return v
}

// can is what an operator may do with it as it stands, the likeliest first.
func (v *rolloutView) can() (list []can) {
	approve := can{"approve", "Approve stage " + fmt.Sprint(v.GetStage()), "The stage begins with its baseline."}
	pause := can{"pause", "Pause",
		"Stands still at whatever has been applied. Guardrails hold all the same. What was measured is measured again " +
			"afterwards."}
	resume := can{"resume", "Resume", "The phase that was paused begins again."}
	abort := can{"abort", "!Abort", "Gives up, and takes back what was applied."}
	switch {
	case v.GetPhase() == "done":
		return []can{{"rollback", "!Roll back", "Every region gets back what it ran before. Possible as long as no later " +
			"rollout is done."}}
	case v.GetPhase() == "rolling_back" && v.GetTrouble() != "":
		return []can{{"abort", "!Give up late nodes",
			"Ends the rollback while they still run the tuning that was taken back."}}
	case v.Over, v.GetPhase() == "rolling_back":
		return nil
	case v.Paused:
		return []can{resume, abort}
	case v.GetPhase() == "awaiting_approval":
		return []can{approve, pause, abort}
	}
	return []can{pause, abort}
}

// rails are the guardrails with what is held against them.
func rails(r *controlv1.Rollout) (out []rail) {
	g, was, now := r.GetGuardrails(), r.GetBaseline(), r.GetNow()
	ceiling := func(name, unit string, c *controlv1.RolloutCeiling, was, now *float64) {
		one := rail{Name: name, Unit: unit, Off: c.GetOff() || c == nil, Most: c.GetLeast()}
		one.put(was, now)
		one.Most = max(one.Most, c.GetFactor()*one.Was)
		one.Broken = !one.Off && one.HasNow && one.Now > one.Most
		one.place()
		out = append(out, one)
	}
	ceiling("Errors of relays and settings", "a node and minute", g.GetErrorsPerMinute(), was.ErrorsPerMinute,
		now.ErrorsPerMinute)
	ceiling("MySQL rows", "a region and second", g.GetRowsPerSecond(), was.RowsPerSecond, now.RowsPerSecond)
	ceiling("Decisions without Redis", "of all", g.GetDegradedShare(), was.DegradedShare, now.DegradedShare)
	ceiling("Convergence delay", "ms, slowest relay", g.GetConvergenceMs(), was.ConvergenceMs, now.ConvergenceMs)
	ceiling("Decision latency", "µs, slowest node", g.GetLatencyUs(), was.LatencyUs, now.LatencyUs)
	denied := rail{Name: "Denied decisions", Unit: "of all, may shift by " + percent(g.GetDeniedShareShift()),
		Off: g.GetDeniedShareShift() >= 1}
	denied.put(was.DeniedShare, now.DeniedShare)
	denied.Most = min(1, denied.Was+g.GetDeniedShareShift())
	denied.Broken = !denied.Off && denied.HasNow && denied.HasWas &&
		(denied.Now > denied.Most || denied.Now < denied.Was-g.GetDeniedShareShift())
	denied.place()
	return append(out, denied)
}

func (r *rail) put(was, now *float64) {
	if was != nil {
		r.Was, r.HasWas = *was, true
	}
	if now != nil {
		r.Now, r.HasNow = *now, true
	}
}

// place finds the places on the drawing.
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

// Heard is how many nodes the figures are of.
func (v rolloutView) Heard() int { return int(v.GetNow().GetNodes()) }
