package main

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/files"
	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/workspaces"
)

type exportAll struct {
	File string `short:"f" placeholder:"FILE" help:"Write to this file instead of stdout."`
}

// Run prints all settings as one document.
func (e exportAll) Run(c *call) error {
	stored, err := c.stored()
	if err != nil {
		return err
	}
	document, err := stored.document()
	if err != nil {
		return err
	}
	form := document.YAML
	if c.form == formJSON {
		form = document.JSON
	}
	text, err := form()
	if err != nil {
		return &hinted{err, exitFailure,
			"Correct what is stored with weirctl override or weirctl namespace, or delete some of it."}
	}
	if e.File == "" {
		_, err = c.stdout.Write(text)
		return err
	}
	if err := files.Replace(e.File, text, 0o644); err != nil {
		return &hinted{err, exitFailure, "Name a file that can be written with -f."}
	}
	namespaces, overrides := int64(len(document.Namespaces)), int64(len(document.Overrides))
	_, _ = fmt.Fprintf(c.stderr, "%s: %s, %s\n", e.File, format.Plural(namespaces, "namespace"), format.Plural(overrides,
		"override"))
	return nil
}

// stored is what is set in a fleet, in order.
type stored struct {
	tunings    []*controlv1.RegionTuning
	namespaces []*controlv1.Namespace
	overrides  []*controlv1.Override
	visible    *workspaces.Set // workspaces that the token may see; tunings is empty unless it may see all
}

// stored reads all settings, page by page. A change during that may or may not be in it.
func (c *call) stored() (all stored, err error) {
	tunings, err := answered(c, c.rollouts.GetTuning, &controlv1.GetTuningRequest{})
	if connect.CodeOf(err) == connect.CodePermissionDenied {
		all.visible, err = c.visible(err)
	}
	if err != nil {
		return all, err
	}
	all.tunings = tunings.GetTunings()
	if all.namespaces, err = c.allNamespaces(); err != nil {
		return all, err
	}
	all.overrides, err = c.allOverrides()
	return all, err
}

// visible returns the workspaces of the caller's token, if it is limited to some: such a token may
// see their settings but not the fleet's tuning. Otherwise it returns denied.
func (c *call) visible(denied error) (*workspaces.Set, error) {
	who, err := answered(c, c.tokens.WhoAmI, &controlv1.WhoAmIRequest{})
	if err != nil || len(who.GetWorkspaces()) == 0 {
		return nil, denied
	}
	_, _ = fmt.Fprintln(c.stderr,
		"the token is limited to some workspaces: other workspaces and the tuning are left out")
	return workspaces.New(who.GetWorkspaces()...)
}

func (c *call) allNamespaces() (all []*controlv1.Namespace, err error) {
	for more, last := true, new(controlv1.Namespace); more; {
		page, err := answered(c, c.settings.ListAllNamespaces, &controlv1.ListAllNamespacesRequest{
			AfterWorkspace: last.GetWorkspace(), AfterNamespace: last.GetNamespace(),
		})
		if err != nil {
			return nil, err
		}
		for _, n := range page.GetNamespaces() {
			later := settings.CompareNamespaces(namespaceOf(last), namespaceOf(n)) < 0
			if !later || len(all) >= settings.NamespacesMax {
				return nil, notListed("namespaces", settings.NamespacesMax)
			}
			all, last = append(all, n), n
		}
		more = page.GetHasMore() && len(page.GetNamespaces()) > 0
	}
	return all, nil
}

func (c *call) allOverrides() (all []*controlv1.Override, err error) {
	for more, last := true, new(controlv1.Override); more; {
		page, err := answered(c, c.settings.ListAllOverrides, &controlv1.ListAllOverridesRequest{
			AfterWorkspace: last.GetWorkspace(), AfterNamespace: last.GetNamespace(), AfterPattern: last.GetPattern(),
		})
		if err != nil {
			return nil, err
		}
		for _, o := range page.GetOverrides() {
			later := settings.CompareOverrides(overrideOf(last), overrideOf(o)) < 0
			if !later || len(all) >= settings.OverridesMax {
				return nil, notListed("overrides", settings.OverridesMax)
			}
			all, last = append(all, o), o
		}
		more = page.GetHasMore() && len(page.GetOverrides()) > 0
	}
	return all, nil
}

// notListed is the error about names that are not UTF-8, which the API cannot send, or too many of them.
func notListed(what string, most int) error {
	return &hinted{fmt.Errorf("the %s cannot be written as a document: a name is not UTF-8, or there are more than %s",
		what, format.Digits(int64(most))), exitFailure, "See weirctl namespace list and weirctl override list."}
}

// answered makes one call of many; --timeout bounds them together.
func answered[I, O any](
	c *call, do func(context.Context, *connect.Request[I]) (*connect.Response[O], error), request *I,
) (*O, error) {
	answer, err := do(c.ctx, connect.NewRequest(request))
	if err != nil {
		return nil, err
	}
	return answer.Msg, nil
}

// document leaves out defaults.
func (s stored) document() (*settings.Document, error) {
	d := new(settings.Document)
	for _, t := range s.tunings {
		if t.GetRegion() == "" && t.GetVersion() == 0 {
			continue // none was ever rolled out
		}
		read, err := tuning.ReadWhole([]byte(t.GetDocument()))
		if err != nil {
			return nil, &hinted{fmt.Errorf("tuning of %s: %w", orFleet(t.GetRegion()), err), exitFailure,
				"Upgrade weirctl to the version of weir-control."}
		}
		if t.GetRegion() == "" {
			d.Tuning = &read
			continue
		}
		if d.RegionTuning == nil {
			d.RegionTuning = make(map[string]tuning.Tuning)
		}
		d.RegionTuning[t.GetRegion()] = read
	}
	for _, n := range s.namespaces {
		if set := namespaceOf(n); !set.IsDefault() {
			d.Namespaces = append(d.Namespaces, set)
		}
	}
	for _, o := range s.overrides {
		d.Overrides = append(d.Overrides, overrideOf(o))
	}
	return d, nil
}

func namespaceOf(n *controlv1.Namespace) settings.Namespace {
	return settings.Namespace{
		Workspace: n.GetWorkspace(), Namespace: n.GetNamespace(), Shadow: n.GetShadow(),
		Mode: n.GetMode(), Outage: n.GetOutage(), NodeShare: n.GetNodeShare(), Estimate: n.GetEstimate(),
	}
}

func overrideOf(o *controlv1.Override) settings.Override {
	return settings.Override{
		Workspace: o.GetWorkspace(), Namespace: o.GetNamespace(), Pattern: o.GetPattern(),
		Limit: o.GetLimit(), DurationMs: o.GetDurationMs(), Candidate: o.GetCandidate(), Shadow: o.GetShadow(),
	}
}
