package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

type usageShow struct {
	Workspace string `arg:"" optional:"" help:"The workspace. Default: all."`
	Namespace string `arg:"" optional:"" help:"The namespace in it. Default: the namespaces with the most cost."`
	Region    string `placeholder:"NAME" help:"Only this region. Default: all together."`
	Since     string `default:"24h" placeholder:"TIME" help:"How far back: hours or days, such as 24h, 7d or 90d (1h to 90d)."`
	Step      string `default:"auto" enum:"auto,hour,day" help:"auto, hour or day. auto is hours for up to 7 days."`
	Limit     int32  `default:"10" help:"How many namespaces (1 to 50)."`
}

func (u usageShow) Run(c *call) error {
	since, err := usageSince(u.Since)
	if err != nil {
		return err
	}
	step := map[string]controlv1.UsageStep{"hour": controlv1.UsageStep_USAGE_STEP_HOUR,
		"day": controlv1.UsageStep_USAGE_STEP_DAY}[u.Step]
	ask := &controlv1.GetUsageRequest{Workspace: u.Workspace, Namespace: u.Namespace, Region: u.Region, Step: step,
		FromMs: time.Now().Add(-since).UnixMilli(), Limit: u.Limit}
	return show(c, c.TopKeys.GetUsage, ask, func(w io.Writer, answer *controlv1.GetUsageResponse) {
		if u.Namespace != "" {
			writeUsageSteps(w, answer)
		} else {
			writeUsageTop(w, answer)
		}
		writeUsageNotes(w, answer)
	})
}

// usageSince reads a time such as 24h or 7d.
func usageSince(text string) (time.Duration, error) {
	since, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var hours time.Duration
		hours, err = time.ParseDuration(days + "h")
		since = 24 * hours
	}
	if most := 90 * 24 * time.Hour; err != nil || since < time.Hour || since > most {
		return 0, fmt.Errorf("%w: --since is %q (1h to 90d)", controlplane.ErrInvalid, text)
	}
	return since, nil
}

func writeUsageTop(w io.Writer, answer *controlv1.GetUsageResponse) {
	t := format.NewTable(w)
	t.Row("WORKSPACE", "NAMESPACE", "ACCEPTED", "DENIED", "ACCEPTED BY "+lineStepName(answer))
	for _, s := range answer.GetSeries() {
		workspace, namespace := s.GetWorkspace(), s.GetNamespace()
		if workspace == "" {
			workspace, namespace = "(others)", "-"
		}
		t.Row(workspace, namespace, format.Digits(s.GetAccepted()), "~"+format.Digits(s.GetDenied()),
			sparkline(answer.GetSteps(), s.GetAcceptedSteps()))
	}
	t.Flush()
	if answer.GetTruncated() {
		format.Head(w, "More namespaces had cost: see --limit.")
	}
}

func usageStepName(answer *controlv1.GetUsageResponse) string {
	if answer.GetStepMs() > time.Hour.Milliseconds() {
		return "DAY"
	}
	return "HOUR"
}

// lineStepName names what a character of a line stands for, for example 2 HOURS.
func lineStepName(answer *controlv1.GetUsageResponse) string {
	if n := stepsPerBar(len(answer.GetSteps())); n > 1 {
		return fmt.Sprintf("%d %sS", n, usageStepName(answer))
	}
	return usageStepName(answer)
}

func writeUsageSteps(w io.Writer, answer *controlv1.GetUsageResponse) {
	if answer.GetTruncated() {
		format.Head(w, "Some cost is missing: there are more figures than a call reads. Ask for less with --since.")
	}
	layout := "2006-01-02 15:04"
	if usageStepName(answer) == "DAY" {
		layout = time.DateOnly
	}
	for _, s := range answer.GetSeries() {
		format.Head(w, "accepted %s  %s", sparkline(answer.GetSteps(), s.GetAcceptedSteps()), format.Digits(s.GetAccepted()))
		format.Head(w, "denied   %s  ~%s\n", sparkline(answer.GetSteps(), s.GetDeniedSteps()), format.Digits(s.GetDenied()))
		t := format.NewTable(w)
		t.Row(usageStepName(answer)+" (UTC)", "ACCEPTED", "DENIED", "")
		for i, step := range answer.GetSteps() {
			if i >= len(s.GetAcceptedSteps()) || i >= len(s.GetDeniedSteps()) {
				break
			}
			accepted, denied := format.Digits(s.GetAcceptedSteps()[i]), "~"+format.Digits(s.GetDeniedSteps()[i])
			problem := ""
			if !step.GetKnown() {
				none, of := s.GetAcceptedSteps()[i]+s.GetDeniedSteps()[i] == 0, ""
				if missing := step.GetMissingRegions(); len(missing) > 0 {
					of = " of " + strings.Join(missing, ", ")
				}
				switch {
				case none:
					accepted, denied, problem = "-", "-", "unknown: no reports"+of
				case of != "":
					problem = "too low: no reports" + of
				default:
					problem = "too low: some hours without reports"
				}
			}
			t.Row(time.UnixMilli(step.GetAtMs()).UTC().Format(layout), accepted, denied, problem)
		}
		t.Flush()
	}
}

func writeUsageNotes(w io.Writer, answer *controlv1.GetUsageResponse) {
	unknown := int64(0)
	for _, step := range answer.GetSteps() {
		if !step.GetKnown() {
			unknown++
		}
	}
	format.Head(w, "\nDenied cost (~) is an estimate from a sample of the denials. "+
		"The newest cost is up to half a minute old.")
	if unknown > 0 {
		format.Head(w, "%s unknown or too low (a gap in the line), because a region sent no reports.",
			format.Plural(unknown, strings.ToLower(usageStepName(answer))))
	}
}

// barsMost bounds the length of a line. 7 days of hours need two hours for each character; 90 days fit.
const barsMost = 96

// stepsPerBar returns how many steps a character of a line stands for.
func stepsPerBar(steps int) int { return max(1, (steps+barsMost-1)/barsMost) }

// sparkline draws a value for each step, and a gap for each step that is not known. If the steps are more than
// barsMost, a character stands for the sum of several, and is a gap if none of them is known.
func sparkline(steps []*controlv1.UsageTime, values []int64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	n := stepsPerBar(len(values))
	sums, known := make([]int64, (len(values)+n-1)/n), make([]bool, (len(values)+n-1)/n)
	first := len(sums)*n - len(values) // the oldest character has fewer steps, not the newest
	most := int64(1)
	for i, v := range values {
		bar := (i + first) / n
		sums[bar] += v
		most = max(most, sums[bar])
		known[bar] = known[bar] || i < len(steps) && steps[i].GetKnown()
	}
	var b strings.Builder
	for i, v := range sums {
		if !known[i] {
			b.WriteRune(' ')
			continue
		}
		b.WriteRune(levels[int(float64(max(0, v))/float64(most)*float64(len(levels)-1)+0.5)])
	}
	return b.String()
}
