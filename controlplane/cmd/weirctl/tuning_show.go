package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

type tuningGet struct {
	Region string `placeholder:"REGION" help:"Only this region's; fleet: that of regions without their own. Default: all."`
}

func (g tuningGet) Run(c *call) error {
	inForce, err := c.inForce()
	if err != nil {
		return err
	}
	if g.Region != "" {
		of := func(name string) func(*controlv1.RegionTuning) bool {
			return func(t *controlv1.RegionTuning) bool { return regionName(t) == name }
		}
		at := slices.IndexFunc(inForce, of(g.Region))
		if at < 0 {
			at = slices.IndexFunc(inForce, of(plan.FleetName))
		}
		if at < 0 {
			return errors.New("weir-control sent no tuning of the fleet")
		}
		inForce = inForce[at : at+1]
	}
	fields, err := fieldsOf(inForce)
	if err != nil {
		return err
	}
	return c.print(&controlv1.GetTuningResponse{Tunings: inForce}, func(w io.Writer) { writeTunings(w, inForce, fields) })
}

// fieldsOf returns the values of each tuning by field.
func fieldsOf(tunings []*controlv1.RegionTuning) ([]map[string]json.RawMessage, error) {
	values := make([]map[string]json.RawMessage, len(tunings))
	for i, t := range tunings {
		if err := json.Unmarshal([]byte(t.GetDocument()), &values[i]); err != nil {
			return nil, fmt.Errorf("tuning of %s: %w", regionName(t), err)
		}
	}
	return values, nil
}

// writeTunings prints tunings side by side, a line for each field.
func writeTunings(w io.Writer, tunings []*controlv1.RegionTuning, values []map[string]json.RawMessage) {
	t := format.NewTable(w)
	names, versions := []string{"FIELD"}, []string{"version"}
	for _, one := range tunings {
		names, versions = append(names, regionName(one)), append(versions, tuningVersion(one.GetVersion()))
	}
	t.Row(names...)
	t.Row(versions...)
	for _, field := range tuning.Fields() {
		cells := []string{field}
		for _, v := range values {
			cells = append(cells, string(v[field]))
		}
		t.Row(cells...)
	}
	t.Flush()
}

type tuningDiff struct {
	tuningFlags
	Version int64 `placeholder:"N" help:"A version that tuning history shows, in place of --tuning or --set."`
}

// Run prints the changes that a document or a version would make to the tuning in force, or the differences between
// regions and the fleet.
func (d tuningDiff) Run(c *call) error {
	inForce, err := c.inForce()
	if err != nil {
		return err
	}
	document, err := d.document(c, inForce)
	if err != nil {
		return err
	}
	if c.form.documents() {
		found, err := differencesOf(inForce, document)
		if err != nil {
			return wrongTuning(err)
		}
		return c.document(map[string]any{"tuning": found})
	}
	_, err = writeDiff(c.stdout, inForce, document)
	return wrongTuning(err)
}

// document returns the tuning to compare with the tuning in force. Without flags it is the fleet's.
func (d tuningDiff) document(c *call, inForce []*controlv1.RegionTuning) (string, error) {
	switch named := d.Tuning != "" || len(d.Set) > 0; {
	case d.Version != 0 && named:
		return "", wrongTuning(errors.New("--version and --tuning or --set name different tunings: use one"))
	case d.Version != 0:
		return c.versionOf(d.Version)
	case named:
		document, err := d.chosen(inForce)
		return document, wrongTuning(err)
	}
	return baseOf(inForce, plan.FleetName)
}

// versionOf returns the document of a version.
func (c *call) versionOf(version int64) (string, error) {
	answer, err := apiclient.Ask(c.ctx, c.Rollouts.ListTunings,
		&controlv1.ListTuningsRequest{BeforeVersion: version + 1, Limit: 1})
	if err != nil {
		return "", err
	}
	if found := answer.GetVersions(); len(found) == 1 && found[0].GetVersion() == version {
		return found[0].GetDocument(), nil
	}
	return "", wrongTuning(fmt.Errorf("--version is %d, which was never written", version))
}

// differencesOf returns the fields that a document changes, by region, for programs.
func differencesOf(inForce []*controlv1.RegionTuning, document string) (found []plan.TuningDifference, err error) {
	next, err := tuning.Parse([]byte(document))
	if err != nil {
		return nil, err
	}
	for _, t := range inForce {
		was, err := tuning.Read([]byte(t.GetDocument()))
		if err != nil {
			return nil, err
		}
		changes, err := tuning.Diff(was, next)
		if err != nil {
			return nil, err
		}
		one := plan.TuningDifference{Region: regionName(t), Changes: []limitchange.Pair{}}
		for _, change := range changes {
			one.Changes = append(one.Changes, limitchange.Pair(change))
		}
		found = append(found, one)
	}
	return found, nil
}

// wrongTuning returns an error about a file or a flag.
func wrongTuning(err error) error {
	if err == nil {
		return nil
	}
	return &hinted{err, exitUsage, "Correct it and try again; see weirctl tuning --help."}
}

type tuningHistory struct {
	Region string `placeholder:"REGION" help:"Only this region's; fleet: that of regions without their own. Default: all."`
	Before int64  `placeholder:"N" help:"Only versions before this one: the next page."`
	Limit  int32  `default:"20" help:"How many versions (1 to 100)."`
}

func (h tuningHistory) Run(c *call) error {
	ask := &controlv1.ListTuningsRequest{BeforeVersion: h.Before, Limit: h.Limit}
	if h.Region != "" {
		region := h.Region
		if region == plan.FleetName {
			region = ""
		}
		ask.Region = &region
	}
	return show(c, c.Rollouts.ListTunings, ask, writeVersions)
}

func writeVersions(w io.Writer, page *controlv1.ListTuningsResponse) {
	if len(page.GetVersions()) == 0 {
		format.Head(w, "no version of the tuning was written: the default is in force")
		return
	}
	t := format.NewTable(w)
	t.Row("VERSION", "REGION", "WRITTEN", "BY", "ROLLOUT", "TUNING")
	for _, v := range page.GetVersions() {
		text := fields.Replace(v.GetDocument())
		if v.GetProblem() != "" {
			text = v.GetProblem()
		}
		t.Row(fmt.Sprint(v.GetVersion()), plan.OrFleet(v.GetRegion()), format.Moment(v.GetCreatedAtMs()), v.GetActor(),
			format.OrNone(v.GetRollout()), v.GetReason())
		t.Long(72, "", "", "", "", "", text)
	}
	t.Flush()
	if page.GetHasMore() {
		format.Head(w, "\nOlder ones: --before %d", page.GetVersions()[len(page.GetVersions())-1].GetVersion())
	}
}
