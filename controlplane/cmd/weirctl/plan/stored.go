package plan

import (
	"context"
	"fmt"
	"io"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/controlplane/internal/limitchange"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/workspaces"
)

// Stored has the settings of a fleet, sorted.
type Stored struct {
	Tunings    []*controlv1.RegionTuning
	Namespaces []*controlv1.Namespace
	Overrides  []*controlv1.Override
	Visible    *workspaces.Set // workspaces that the token can see; Tunings is empty unless it can see all
}

// Fleet is the part of a fleet's API that a plan needs.
type Fleet struct {
	apiclient.Clients
	Warnings io.Writer
}

// Stored reads all settings, page by page. A concurrent change may or may not be included.
func (f Fleet) Stored(ctx context.Context) (all Stored, err error) {
	tunings, err := apiclient.Ask(ctx, f.Rollouts.GetTuning, &controlv1.GetTuningRequest{})
	if connect.CodeOf(err) == connect.CodePermissionDenied {
		all.Visible, err = f.visible(ctx, err)
	}
	if err != nil {
		return all, err
	}
	all.Tunings = tunings.GetTunings()
	if all.Namespaces, err = f.allNamespaces(ctx); err != nil {
		return all, err
	}
	all.Overrides, err = f.allOverrides(ctx)
	return all, err
}

// visible returns the workspaces of the caller's token, if it is limited to some. Such a token can read the settings of
// these workspaces, but not the fleet's tuning. Otherwise visible returns denied.
func (f Fleet) visible(ctx context.Context, denied error) (*workspaces.Set, error) {
	who, err := apiclient.Ask(ctx, f.Tokens.WhoAmI, &controlv1.WhoAmIRequest{})
	if err != nil || len(who.GetWorkspaces()) == 0 {
		return nil, denied
	}
	_, _ = fmt.Fprintln(f.Warnings,
		"the token is limited to some workspaces: other workspaces and the tuning are left out")
	return workspaces.New(who.GetWorkspaces()...)
}

func (f Fleet) allNamespaces(ctx context.Context) (all []*controlv1.Namespace, err error) {
	for more, last := true, new(controlv1.Namespace); more; {
		page, err := apiclient.Ask(ctx, f.Settings.ListAllNamespaces, &controlv1.ListAllNamespacesRequest{
			AfterWorkspace: last.GetWorkspace(), AfterNamespace: last.GetNamespace(),
		})
		if err != nil {
			return nil, err
		}
		for _, n := range page.GetNamespaces() {
			later := settings.CompareNamespaces(limitchange.NamespaceOf(last), limitchange.NamespaceOf(n)) < 0
			if !later || len(all) >= settings.NamespacesMax {
				return nil, &NotListedError{"namespaces", settings.NamespacesMax}
			}
			all, last = append(all, n), n
		}
		more = page.GetHasMore() && len(page.GetNamespaces()) > 0
	}
	return all, nil
}

func (f Fleet) allOverrides(ctx context.Context) (all []*controlv1.Override, err error) {
	for more, last := true, new(controlv1.Override); more; {
		page, err := apiclient.Ask(ctx, f.Settings.ListAllOverrides, &controlv1.ListAllOverridesRequest{
			AfterWorkspace: last.GetWorkspace(), AfterNamespace: last.GetNamespace(), AfterPattern: last.GetPattern(),
		})
		if err != nil {
			return nil, err
		}
		for _, o := range page.GetOverrides() {
			later := settings.CompareOverrides(limitchange.OverrideOf(last), limitchange.OverrideOf(o)) < 0
			if !later || len(all) >= settings.OverridesMax {
				return nil, &NotListedError{"overrides", settings.OverridesMax}
			}
			all, last = append(all, o), o
		}
		more = page.GetHasMore() && len(page.GetOverrides()) > 0
	}
	return all, nil
}

// NotListedError is the error for names that are not UTF-8, which the API cannot send, if there are too many of them.
type NotListedError struct {
	what string
	most int
}

func (e *NotListedError) Error() string {
	return fmt.Sprintf("the %s cannot be written as a document: a name is not UTF-8, or there are more than %s",
		e.what, format.Digits(int64(e.most)))
}

// Document converts the settings to a document, without defaults.
func (s Stored) Document() (*settings.Document, error) {
	d := new(settings.Document)
	for _, t := range s.Tunings {
		if t.GetRegion() == "" && t.GetVersion() == 0 {
			continue // no tuning was ever rolled out
		}
		read, err := tuning.ReadWhole([]byte(t.GetDocument()))
		if err != nil {
			return nil, fmt.Errorf("tuning of %s: %w", OrFleet(t.GetRegion()), err)
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
	for _, n := range s.Namespaces {
		if set := limitchange.NamespaceOf(n); !set.IsDefault() {
			d.Namespaces = append(d.Namespaces, set)
		}
	}
	for _, o := range s.Overrides {
		d.Overrides = append(d.Overrides, limitchange.OverrideOf(o))
	}
	return d, nil
}

// CheckWindow returns an error if the namespace that weir-control stored does not have the requested window, because a
// weir-control of an earlier build ignores the field.
func CheckWindow(stored *controlv1.Namespace, want *string) error {
	if want == nil || limitchange.WindowOf(stored) == *want {
		return nil
	}
	return fmt.Errorf("weir-control has an earlier build, which ignores window %q: all other fields are set; "+
		"upgrade weir-control, then set it again", *want)
}
