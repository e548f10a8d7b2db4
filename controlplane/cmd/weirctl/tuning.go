package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/plan"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/tuning"
)

// tuningFlags select the tuning of a rollout: a whole document, or changed fields of the tuning in force.
type tuningFlags struct {
	Tuning string   `placeholder:"FILE" help:"JSON document of the tuning, every field present. - is stdin, and default and rfc are built in."`
	Set    []string `sep:"none" placeholder:"FIELD=VALUE" help:"Change one field of --tuning, or of the tuning in force, and keep the others."`
	From   string   `placeholder:"REGION" help:"The region whose tuning --set changes, if regions have different tunings; fleet: the tuning of all others."`
}

// chosen returns the document that the flags select. Without --tuning it is based on inForce.
func (f tuningFlags) chosen(inForce []*controlv1.RegionTuning) (string, error) {
	switch {
	case f.Tuning == "" && len(f.Set) == 0:
		return "", errors.New("no tuning is named: change the tuning in force with --set FIELD=VALUE, or give a whole " +
			"document with --tuning FILE")
	case len(f.Set) == 0:
		return tuningDocument(f.Tuning)
	case f.Tuning != "":
		text, err := tuningDocument(f.Tuning)
		if err != nil {
			return "", err
		}
		return edited(text, f.Set)
	}
	base, err := baseOf(inForce, f.From)
	if err != nil {
		return "", err
	}
	return edited(base, f.Set)
}

func edited(document string, changes []string) (string, error) {
	base, err := tuning.ReadWhole([]byte(document)) // an earlier build may have stored it
	if err != nil {
		return "", err
	}
	next, err := tuning.Edit(base, changes)
	if err != nil {
		return "", err
	}
	text, err := next.Document()
	return string(text), err
}

// baseOf returns the document in force that is changed: the document of a region, or the document that all regions
// share.
func baseOf(inForce []*controlv1.RegionTuning, from string) (string, error) {
	var names []string
	for _, t := range inForce {
		names = append(names, regionName(t))
		if from != "" && regionName(t) == from {
			return t.GetDocument(), nil
		}
	}
	if len(inForce) == 0 {
		return "", errors.New("weir-control sent no tuning in force")
	}
	if from != "" {
		return "", fmt.Errorf("--from is %q, which has no tuning of its own (%s)", from, strings.Join(names, ", "))
	}
	first := inForce[0].GetDocument()
	if slices.ContainsFunc(inForce, func(t *controlv1.RegionTuning) bool { return t.GetDocument() != first }) {
		return "", fmt.Errorf("regions have different tunings in force: name the one that --set changes with --from (%s)",
			strings.Join(names, ", "))
	}
	return first, nil
}

func regionName(t *controlv1.RegionTuning) string { return plan.OrFleet(t.GetRegion()) }

// inForce returns the tuning in force.
func (c *call) inForce() ([]*controlv1.RegionTuning, error) {
	answer, err := apiclient.Ask(c.ctx, c.Rollouts.GetTuning, &controlv1.GetTuningRequest{})
	if err != nil {
		return nil, err
	}
	return answer.GetTunings(), nil
}

// writeDiff prints the changes of a document for each tuning in force, and reports whether there are any.
func writeDiff(w io.Writer, inForce []*controlv1.RegionTuning, document string) (differs bool, err error) {
	found, err := differencesOf(inForce, document)
	if err != nil {
		return false, err
	}
	for i, t := range inForce {
		regions := regionsWith(inForce, t.GetDocument())
		if regions[0] != regionName(t) {
			continue // already shown with the first region
		}
		_, _ = fmt.Fprintf(w, "%s:\n", format.Plain(strings.Join(regions, ", ")))
		if len(found[i].Changes) == 0 {
			_, _ = fmt.Fprintln(w, "  nothing changes")
		}
		for _, change := range found[i].Changes {
			_, _ = fmt.Fprintf(w, "  %s: %s -> %s\n", change.Field, change.From, change.To)
			differs = true
		}
	}
	return differs, nil
}

// inForceIn returns the tunings in force in the regions of a plan. A region without its own tuning has the fleet's. If
// a stage takes a share of the regions or all, inForceIn returns all tunings.
func inForceIn(inForce []*controlv1.RegionTuning, plan *controlv1.RolloutPlan) []*controlv1.RegionTuning {
	var regions []string
	for _, stage := range plan.GetStages() {
		if len(stage.GetRegions()) == 0 {
			return inForce
		}
		regions = append(regions, stage.GetRegions()...)
	}
	slices.Sort(regions)
	var there []*controlv1.RegionTuning
	for _, region := range slices.Compact(regions) {
		for _, from := range []string{region, ""} {
			i := slices.IndexFunc(inForce, func(t *controlv1.RegionTuning) bool { return t.GetRegion() == from })
			if i >= 0 {
				there = append(there, &controlv1.RegionTuning{Region: region, Document: inForce[i].GetDocument()})
				break
			}
		}
	}
	if len(there) == 0 {
		return inForce
	}
	return there
}

// regionsWith returns the regions with a document.
func regionsWith(inForce []*controlv1.RegionTuning, document string) (names []string) {
	for _, t := range inForce {
		if t.GetDocument() == document {
			names = append(names, regionName(t))
		}
	}
	return names
}
