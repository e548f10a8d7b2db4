package rules

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

func ruleOf(pattern string, limit int64) *settings.Override {
	return &settings.Override{Workspace: "w", Namespace: "n", Pattern: pattern, Limit: limit}
}

func shadowed(namespace string, shadow bool) settings.Namespace {
	n := settings.DefaultNamespace("w", namespace)
	n.Shadow = shadow
	return n
}

// limitsOn is a store whose rows a trial changes.
type limitsOn struct {
	versioned
	t       testing.TB
	version int
	node    *Rules
}

// onTrial returns a node that runs a trial of a change for 30 s, over a namespace with two overrides and another one
// that no test changes.
func onTrial(t testing.TB, mode string, change settings.Change) *limitsOn {
	t.Helper()
	s := &limitsOn{t: t}
	s.rows = store.SettingsRows{TuningVersion: 3, TuningDocument: []byte(`{"floor":0.5}`),
		Namespaces: []store.NamespaceRow{{Workspace: "w", Namespace: "n"}, {Workspace: "w", Namespace: "other"}},
		Overrides: []store.OverrideRow{store.OverrideRow(*ruleOf("k*", 10)), store.OverrideRow(*ruleOf("gold", 100)),
			{Workspace: "w", Namespace: "other", Pattern: "*", Limit: 7}},
	}
	s.node = newRules(s, "a", nil)
	s.try(7, mode, change)
	s.read()
	return s
}

// try stores a trial.
func (s *limitsOn) try(number int64, mode string, change settings.Change) {
	s.t.Helper()
	document, err := (&settings.LimitsTrial{Mode: mode, Change: change}).Document()
	if err != nil {
		s.t.Fatal(err)
	}
	s.rows.Trial = store.TrialRow{Number: number, Document: []byte(document), Below: tuning.TrialShares,
		Left: 30 * time.Second}
	s.changed()
}

// changed gives the rows another version.
func (s *limitsOn) changed() {
	s.version++
	s.rows.Version = fmt.Sprint(s.version)
}

// set stores an override.
func (s *limitsOn) set(pattern string, limit int64) {
	rows := []store.OverrideRow{store.OverrideRow(*ruleOf(pattern, limit))}
	for _, o := range s.rows.Overrides {
		if o.Namespace != "n" || o.Pattern != pattern {
			rows = append(rows, o)
		}
	}
	s.rows.Overrides = rows
	s.changed()
}

func (s *limitsOn) read() {
	s.t.Helper()
	if err := s.node.Load(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// limitOf returns the limit for a request with a limit of 50, and that of the other side: -1 if nothing is compared.
func limitOf(s *Settings, identifier string) (limit, other int64) {
	limit, duration := int64(50), time.Minute
	by := s.Resolve("w", "n", identifier, &limit, &duration)
	if by.Trial == nil {
		return limit, -1
	}
	o, ok := by.Trial.Other(by, identifier, limit, 50, duration, time.Minute)
	if !ok {
		return limit, -1
	}
	return limit, o.Limit
}

// want holds the node to a trial, 0 for none, and to the limits of "k1" and the other side.
func (s *limitsOn) want(number, limit, other int64) {
	s.t.Helper()
	at := s.node.InForce()
	if is, beside := limitOf(at, "k1"); at.TrialNumber != number || is != limit || beside != other {
		s.t.Errorf("trial %d, the limit of k1 is %d beside %d; want trial %d, %d beside %d", at.TrialNumber, is, beside,
			number, limit, other)
	}
	if at.Version != 3 || at.Tuning.Floor != 0.5 || at.Hash != at.stored.Hash || (at.Evidence() != nil) != (number != 0) {
		s.t.Errorf("version %d, tuning %s, evidence %v", at.Version, at.Hash, at.Evidence())
	}
	if at.spaces[spaceName{"w", "other"}] != at.storedSpaces[spaceName{"w", "other"}] {
		s.t.Error("a namespace that the trial does not touch is compiled twice")
	}
}

func toLimit(pattern string, was, is int64) settings.Change {
	return settings.Change{Overrides: []settings.OverrideChange{{Before: ruleOf(pattern, was), After: ruleOf(pattern, is)}}}
}

// A trial in the mode enforce decides, and one in shadow is only compared. Both end with their lease, by steady time,
// and come back when they are renewed.
func TestATrialOfLimitsIsInForceForItsLease(t *testing.T) {
	for mode, limits := range map[string][2]int64{settings.TrialShadow: {10, 5}, settings.TrialEnforce: {5, 10}} {
		synctest.Test(t, func(t *testing.T) {
			s := onTrial(t, mode, toLimit("k*", 10, 5))
			log := s.node.InForce().Evidence()
			for range 3 {
				time.Sleep(20 * time.Second)
				s.read()
				s.want(7, limits[0], limits[1])
			}
			time.Sleep(29 * time.Second)
			s.node.endTrial()
			s.want(7, limits[0], limits[1])
			time.Sleep(time.Second)
			s.node.endTrial()
			s.want(0, 10, -1)
			s.read() // it is renewed after its end
			s.want(7, limits[0], limits[1])
			if s.node.InForce().Evidence() != log {
				t.Error("the evidence began again")
			}
			s.rows.Trial = store.TrialRow{} // it is withdrawn
			s.changed()
			s.read()
			s.want(0, 10, -1)
		})
	}
}

// An edit of an item that the trial changes voids it at the next read, and so does the rollout that stores the change.
// Neither is a problem. Other edits leave it in force, with its evidence.
func TestAnEditOfWhatATrialChangesVoidsIt(t *testing.T) {
	s := onTrial(t, settings.TrialEnforce, toLimit("k*", 10, 5))
	log := s.node.InForce().Evidence()
	s.set("other", 1)
	s.read()
	if s.want(7, 5, 10); s.node.InForce().Evidence() != log {
		t.Error("the evidence began again")
	}
	s.set("k*", 11)
	s.read()
	s.want(0, 11, -1)
	s.set("k*", 10) // the edit is reverted
	s.read()
	s.want(7, 5, 10)
	s.set("k*", 5) // the rollout keeps the change
	s.read()
	s.want(0, 5, -1)
	if s.node.Errors() != 0 || s.node.Problem() != "" {
		t.Errorf("%d errors: %s", s.node.Errors(), s.node.Problem())
	}
}

// Another number is another trial, with its own evidence.
func TestATrialOfLimitsReplacesAnother(t *testing.T) {
	s := onTrial(t, settings.TrialShadow, toLimit("k*", 10, 5))
	s.want(7, 10, 5)
	first := s.node.InForce().Evidence()
	s.try(8, settings.TrialEnforce, toLimit("k*", 10, 5))
	s.read()
	if s.want(8, 5, 10); s.node.InForce().Evidence() == first {
		t.Error("trial 8 goes on with the evidence of trial 7")
	}
	s.rows.Trial.Below = tuning.TrialShare("a")
	s.changed()
	s.read()
	s.want(0, 10, -1)
	s.rows.Trial.Below++ // it is widened
	s.changed()
	s.read()
	s.want(8, 5, 10)
	s.rows.Trial.Number, s.rows.Trial.Document = 9, []byte(`{"floor":0.25}`)
	s.changed()
	s.read()
	if at := s.node.InForce(); at.TrialNumber != 9 || at.Tuning.Floor != 0.25 || at.Evidence() != nil || at.spaces == nil {
		t.Errorf("after a trial of a tuning: %+v", at)
	}
	if limit, other := limitOf(s.node.InForce(), "k1"); limit != 10 || other != -1 {
		t.Errorf("%d beside %d", limit, other)
	}
}

// The most specific pattern applies on each side.
func TestBothSidesOfATrialHaveTheirOwnPatterns(t *testing.T) {
	precise := *ruleOf("k*", 10)
	precise.DurationMs = 1000
	for name, c := range map[string]struct {
		change        settings.Change
		identifier    string
		before, after int64 // -1: neither is compared
	}{
		"a more specific wildcard": {settings.Change{Overrides: []settings.OverrideChange{{After: ruleOf("k1*", 3)}}}, "k12", 10, 3},
		"its other identifiers":    {settings.Change{Overrides: []settings.OverrideChange{{After: ruleOf("k1*", 3)}}}, "k2", 10, -1},
		"an exact override":        {settings.Change{Overrides: []settings.OverrideChange{{After: ruleOf("k1", 3)}}}, "k1", 10, 3},
		"where there was none":     {settings.Change{Overrides: []settings.OverrideChange{{After: ruleOf("z", 3)}}}, "z", 50, 3},
		"none any more":            {settings.Change{Overrides: []settings.OverrideChange{{Before: ruleOf("gold", 100)}}}, "gold", 100, 50},
		"a wildcard below it":      {settings.Change{Overrides: []settings.OverrideChange{{Before: ruleOf("gold", 100)}, {After: ruleOf("g*", 9)}}}, "gold", 100, 9},
		"the same limit":           {settings.Change{Overrides: []settings.OverrideChange{{After: ruleOf("k1", 10)}}}, "k1", 10, -1},
		"another duration":         {settings.Change{Overrides: []settings.OverrideChange{{Before: ruleOf("k*", 10), After: &precise}}}, "k1", 10, -1},
	} {
		t.Run(name, func(t *testing.T) {
			inOrder(&c.change)
			s := onTrial(t, settings.TrialShadow, c.change)
			if limit, other := limitOf(s.node.InForce(), c.identifier); limit != c.before || other != c.after {
				t.Errorf("shadow: %d beside %d, want %d beside %d", limit, other, c.before, c.after)
			}
			if c.after == -1 {
				return
			}
			s.try(8, settings.TrialEnforce, c.change)
			s.read()
			if limit, other := limitOf(s.node.InForce(), c.identifier); limit != c.after || other != c.before {
				t.Errorf("enforce: %d beside %d, want %d beside %d", limit, other, c.after, c.before)
			}
		})
	}
}

// inOrder puts a change in order.
func inOrder(c *settings.Change) {
	from, to := new(settings.Document), new(settings.Document)
	for _, o := range c.Overrides {
		if o.Before != nil {
			from.Overrides = append(from.Overrides, *o.Before)
		}
		if o.After != nil {
			to.Overrides = append(to.Overrides, *o.After)
		}
	}
	*c = settings.Difference(from, to, true)
}

// A namespace that only the trial puts in shadow mode, or takes out of it, is compared, and so is a namespace that
// has no settings otherwise.
func TestATrialOfANamespacesShadowMode(t *testing.T) {
	for _, namespace := range []string{"n", "new"} {
		change := settings.Change{Namespaces: []settings.NamespaceChange{
			{Before: shadowed(namespace, false), After: shadowed(namespace, true)}}}
		for _, mode := range []string{settings.TrialShadow, settings.TrialEnforce} {
			s := onTrial(t, mode, change)
			limit, duration := int64(50), time.Minute
			by := s.node.InForce().Resolve("w", namespace, "x", &limit, &duration)
			if by.Shadow != (mode == settings.TrialEnforce) || by.Trial == nil || !by.Special {
				t.Fatalf("%s, %s: %+v", namespace, mode, by)
			}
			if o, ok := by.Trial.Other(by, "x", 50, 50, duration, duration); !ok || o.Shadow == by.Shadow || o.Limit != 50 {
				t.Errorf("%s, %s: %+v, %v", namespace, mode, o, ok)
			}
		}
	}
}

// A namespace that changes its mode and its window for a trial does so as by an edit and, at the end, an edit back.
// Both sides share the count of keys that wait for a sync.
func TestATrialOfAMode(t *testing.T) {
	estimates := settings.DefaultNamespace("w", "n")
	estimates.Mode = "estimate"
	change := settings.Change{Namespaces: []settings.NamespaceChange{
		{Before: settings.DefaultNamespace("w", "n"), After: estimates}}}
	s := onTrial(t, settings.TrialEnforce, change)
	in := func() *space { return s.node.InForce().spaces[spaceName{"w", "n"}] }
	if in().Estimate == nil {
		t.Fatal("the trial's mode is not in force")
	}
	if _, other := limitOf(s.node.InForce(), "k1"); other != -1 {
		t.Error("estimates are compared with exact counts")
	}
	waiting := in().Estimate.Waiting
	s.rows.Namespaces[0].Mode = "estimate" // the rollout keeps it
	s.changed()
	s.read()
	if in().Estimate == nil || in().Estimate.Waiting != waiting || s.node.InForce().TrialNumber != 0 {
		t.Errorf("%+v", in())
	}
}

// Sides with different modes, or of which one leaks, are not compared, even if their limits differ.
func TestSidesThatCountInDifferentWaysAreNotCompared(t *testing.T) {
	namespace := func(mode, estimate string) settings.Namespace {
		n := settings.DefaultNamespace("w", "n")
		n.Mode, n.Estimate = mode, estimate
		return n
	}
	const leaky = `{"drain":"leaky"}`
	for _, sides := range [][2]settings.Namespace{
		{namespace("exact", ""), namespace("estimate", "")}, {namespace("estimate", ""), namespace("exact", "")},
		{namespace("estimate", ""), namespace("estimate", leaky)}, {namespace("estimate", leaky), namespace("estimate", "")},
	} {
		for _, mode := range []string{settings.TrialShadow, settings.TrialEnforce} {
			change := toLimit("k*", 10, 5)
			change.Namespaces = []settings.NamespaceChange{{Before: sides[0], After: sides[1]}}
			s := onTrial(t, settings.TrialShadow, toLimit("k*", 10, 5))
			s.rows.Namespaces[0].Mode, s.rows.Namespaces[0].Estimate = sides[0].Mode, sides[0].Estimate
			s.try(8, mode, change)
			s.read()
			limit := int64(10)
			if mode == settings.TrialEnforce {
				limit = 5
			}
			s.want(8, limit, -1)
		}
	}
}

// A leaky level has drained by the limit in force, so no other limit is judged by it.
func TestALeakyLevelIsNotCompared(t *testing.T) {
	s := onTrial(t, settings.TrialShadow, toLimit("k*", 10, 5))
	s.rows.Namespaces[0].Mode = "estimate"
	for estimate, other := range map[string]int64{"": 5, `{"drain":"leaky"}`: -1} {
		s.rows.Namespaces[0].Estimate = estimate
		s.changed()
		s.read()
		s.want(7, 10, other)
	}
}

// A document that cannot be read, or a change that nodes cannot apply, is an error each time. The stored settings are
// in force.
func TestATrialOfLimitsThatCannotBeRun(t *testing.T) {
	s := onTrial(t, settings.TrialEnforce, toLimit("k*", 10, 5))
	leaky := toLimit("k*", 10, 5)
	leaky.Overrides[0].After.Candidate = 3 // which a leaky namespace cannot have
	bad, err := (&settings.LimitsTrial{Mode: settings.TrialEnforce, Change: leaky}).Document()
	if err != nil {
		t.Fatal(err)
	}
	s.rows.Namespaces[0].Mode, s.rows.Namespaces[0].Estimate = "estimate", `{"drain":"leaky"}`
	for document, says := range map[string]string{`{"limits":{"mode":"enforce"},"requires":["limits"]}`: "0 items",
		`{"limits":{"mode":"both"},"requires":["limits"]}`:  "mode of the trial",
		`{"limits":{"mode":"enforce"},"requires":["more"]}`: "trial", bad: "1 candidates are ignored"} {
		s.rows.Trial.Number++
		s.rows.Trial.Document = []byte(document)
		s.changed()
		for range 2 {
			err := s.node.Load(t.Context())
			if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "trial ") {
				t.Errorf("%s: %v", document, err)
			}
			s.want(0, 10, -1)
		}
	}
}

// Problems that the stored rows have anyway do not keep a trial from running.
func TestATrialOfLimitsRunsBesideOtherProblems(t *testing.T) {
	s := onTrial(t, settings.TrialEnforce, toLimit("k*", 10, 5))
	s.set("broken", -1)
	if err := s.node.Load(t.Context()); err == nil || strings.Contains(err.Error(), "trial") {
		t.Errorf("%v", err)
	}
	s.want(7, 5, 10)
}

// A build that knows no trials of limits rejects the document, and so runs the stored settings.
func TestABuildWithoutTrialsOfLimitsRejectsThem(t *testing.T) {
	s := onTrial(t, settings.TrialShadow, toLimit("k*", 10, 5))
	if _, err := tuning.Read(s.rows.Trial.Document); err == nil || !strings.Contains(err.Error(), "limits") {
		t.Errorf("%v", err)
	}
}

// Resets apply on the side that decides, whichever it is, and stay when the trial ends.
func TestAResetWithinATrialOfLimits(t *testing.T) {
	for _, mode := range []string{settings.TrialShadow, settings.TrialEnforce} {
		synctest.Test(t, func(t *testing.T) {
			s := onTrial(t, mode, toLimit("k*", 10, 5))
			s.rows.Resets = []store.ResetRow{{Workspace: "w", Namespace: "n", Identifier: "k1", Generation: 1,
				AtMs: time.Now().UnixMilli(), ExpiresAtMs: time.Now().Add(time.Hour).UnixMilli()}}
			s.changed()
			s.read()
			for _, number := range []int64{7, 0} {
				limit, duration := int64(50), time.Minute
				by := s.node.InForce().Resolve("w", "n", "k1", &limit, &duration)
				reset := s.node.InForce().ResetOf(&window.Key{Workspace: "w", Namespace: "n", Identifier: "k1"})
				if by.Reset == nil || reset == nil || s.node.InForce().TrialNumber != number || (by.Trial != nil) != (number != 0) {
					t.Errorf("%s, trial %d: %+v", mode, s.node.InForce().TrialNumber, by)
				}
				time.Sleep(30 * time.Second)
				s.node.endTrial()
			}
		})
	}
}

// While settings are read and trials end, decisions see one snapshot. Run it with -race.
func TestTrialsOfLimitsChangeBesideDecisions(t *testing.T) {
	s := onTrial(t, settings.TrialEnforce, toLimit("k*", 10, 5))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				switch limit, other := limitOf(s.node.InForce(), "k1"); {
				case limit == 10 && other == -1, limit == 5 && other == 10, limit == 10 && other == 5:
				default:
					t.Errorf("%d beside %d", limit, other)
				}
			}
		})
	}
	for i := range int64(200) {
		switch i % 4 {
		case 0:
			s.try(8+i, settings.TrialShadow, toLimit("k*", 10, 5))
		case 1:
			s.try(8+i, settings.TrialEnforce, toLimit("k*", 10, 5))
		case 2:
			s.set("other", i)
		case 3:
			s.node.InForce().trial.until.Store(0)
			s.node.endTrial()
		}
		s.read()
		_ = s.node.InForce().Evidence().Figures(clock.SteadyStart)
	}
	close(done)
	readers.Wait()
}

// In any order of reads, failures, edits, renewals and withdrawals, no node decides by a trial for longer than the
// lease that it has read last, nor after it has read that the trial is withdrawn or void. In shadow mode the stored
// limit decides at all times.
func TestNoTrialOfLimitsOutlivesItsLease(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mode := rapid.SampledFrom([]string{settings.TrialShadow, settings.TrialEnforce}).Draw(rt, "mode")
		s := onTrial(t, mode, toLimit("k*", 10, 5))
		now := clock.SteadyStart + 60_000 // later than the first read
		s.node.cfg.Clock = clock.New(time.Now)
		s.node.cfg.Clock.SetSteady(func() clock.Steady { return now })
		s.read()
		ends, stored, trial, runs := now+30_000, int64(10), s.rows.Trial, true // as the node has read them
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				s.set("k*", rapid.SampledFrom([]int64{10, 10, 11, 5}).Draw(rt, "limit"))
			case 1:
				if s.rows.Trial = trial; rapid.Bool().Draw(rt, "withdrawn") {
					s.rows.Trial = store.TrialRow{}
				}
				s.changed()
			case 2:
				s.rows.Trial.Left = time.Duration(rapid.IntRange(0, 60_000).Draw(rt, "left")) * time.Millisecond
			default:
				now += clock.Steady(rapid.IntRange(0, 20_000).Draw(rt, "passes"))
			}
			s.node.endTrial()
			if rapid.Bool().Draw(rt, "reads") {
				was := runs
				s.read()
				stored = s.rows.Overrides[0].Limit
				for _, o := range s.rows.Overrides {
					if o.Pattern == "k*" {
						stored = o.Limit
					}
				}
				if runs = s.rows.Trial.Number != 0 && stored == 10; !runs {
					ends = 0
				} else if left := now + clock.Steady(s.rows.Trial.Left.Milliseconds()); was {
					ends = max(ends, left)
				} else {
					ends = left
				}
			}
			limit, _ := limitOf(s.node.InForce(), "k1")
			want, number := stored, int64(0)
			if runs && now < ends {
				if number = 7; mode == settings.TrialEnforce {
					want = 5
				}
			}
			if s.node.InForce().TrialNumber != number || limit != want {
				rt.Fatalf("at %d trial %d is in force, which ends at %d: the limit is %d, want trial %d, %d", now,
					s.node.InForce().TrialNumber, ends, limit, number, want)
			}
		}
	})
}

// For any rows and any change, enforce resolves as the changed rows do, and shadow as the stored ones. The other side
// is the other one, and where both agree nothing is compared. After the lease, the stored rows are in force.
func TestATrialOfLimitsAgreesWithTheRows(t *testing.T) {
	patterns := []string{"*", "a*", "ab*", "*b", "a", "ab", "b"}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) *settings.Document {
			d := new(settings.Document)
			for _, namespace := range []string{"n", "o"} {
				n := shadowed(namespace, rapid.Bool().Draw(t, label+" shadow"))
				if !n.IsDefault() {
					d.Namespaces = append(d.Namespaces, n)
				}
				for _, pattern := range patterns {
					if rapid.Bool().Draw(t, label+pattern) {
						d.Overrides = append(d.Overrides, settings.Override{Workspace: "w", Namespace: namespace, Pattern: pattern,
							Limit: rapid.Int64Range(0, 3).Draw(t, label+" limit"), Shadow: rapid.IntRange(0, 3).Draw(t, "s") == 0,
							DurationMs: rapid.SampledFrom([]int64{0, 0, 0, 60_000, 1000}).Draw(t, label+" duration")})
					}
				}
			}
			return d
		}
		from, to := draw("from"), draw("to")
		change := settings.Difference(from, to, rapid.Bool().Draw(t, "prune"))
		if change.Items() == 0 {
			return
		}
		after := change.Apply(from)
		stored, changed := compiled(t, from), compiled(t, after)
		mode := rapid.SampledFrom([]string{settings.TrialShadow, settings.TrialEnforce}).Draw(t, "mode")
		document, err := (&settings.LimitsTrial{Mode: mode, Change: change}).Document()
		if err != nil {
			t.Fatal(err)
		}
		source := &versioned{rowsOf(from)}
		source.rows.Version = "1"
		source.rows.Trial = store.TrialRow{Number: 7, Document: []byte(document), Below: tuning.TrialShares, Left: time.Hour}
		node := newRules(source, "a", nil)
		if err := node.Load(t.Context()); err != nil || node.InForce().TrialNumber != 7 {
			t.Fatalf("trial %d, %v", node.InForce().TrialNumber, err)
		}
		decides, beside := stored, changed
		if mode == settings.TrialEnforce {
			decides, beside = changed, stored
		}
		for _, namespace := range []string{"n", "o"} {
			for _, identifier := range []string{"a", "ab", "abb", "b", "c"} {
				is, want, other := resolve(node.InForce(), namespace, identifier), resolve(decides, namespace, identifier),
					resolve(beside, namespace, identifier)
				if is.resolved != want.resolved {
					t.Fatalf("%s/%s: %+v, want %+v", namespace, identifier, is, want)
				}
				compares := want.duration == other.duration && (want.limit != other.limit || want.shadow != other.shadow)
				if is.compares != compares || compares && (is.other.Limit != other.limit || is.other.Shadow != other.shadow) {
					t.Fatalf("%s/%s: %+v beside %+v, want %+v beside %+v", namespace, identifier, is.resolved, is.other,
						want.resolved, other.resolved)
				}
			}
		}
		node.InForce().trial.until.Store(0)
		node.endTrial()
		for _, identifier := range []string{"a", "ab", "abb", "b", "c"} {
			if is, want := resolve(node.InForce(), "n", identifier), resolve(stored, "n", identifier); is != want {
				t.Fatalf("after the trial, %s: %+v, want %+v", identifier, is, want)
			}
		}
	})
}

type resolved struct {
	pattern  string
	limit    int64
	duration time.Duration
	shadow   bool
}

type bothResolved struct {
	resolved
	other    Other
	compares bool
}

func resolve(s *Settings, namespace, identifier string) (r bothResolved) {
	r.limit, r.duration = 2, time.Minute
	by := s.Resolve("w", namespace, identifier, &r.limit, &r.duration)
	r.pattern, r.shadow = by.Pattern, by.Shadow
	if by.Trial != nil {
		r.other, r.compares = by.Trial.Other(by, identifier, r.limit, 2, r.duration, time.Minute)
	}
	return r
}

func rowsOf(d *settings.Document) (rows store.SettingsRows) {
	for _, n := range d.Namespaces {
		rows.Namespaces = append(rows.Namespaces, store.NamespaceRow{Workspace: n.Workspace, Namespace: n.Namespace,
			Shadow: n.Shadow})
	}
	for _, o := range d.Overrides {
		rows.Overrides = append(rows.Overrides, store.OverrideRow(o))
	}
	return rows
}

func compiled(t *rapid.T, d *settings.Document) *Settings {
	s, err := compile(rowsOf(d), nil, defaultSettings(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
