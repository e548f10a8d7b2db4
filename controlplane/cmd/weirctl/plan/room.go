package plan

import (
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/window"
)

// rooms are the patterns with several '*' of each namespace while a plan is made. A namespace has room for at most
// window.PatternsAlikeMax patterns that begin alike, so a new pattern may have to replace a pattern that is deleted.
type rooms map[settings.Namespace]*room

type room struct {
	there []string
	going map[string]*Change // deletions of some of them
}

// hold adds a stored pattern. deletion is nil if the pattern stays.
func (r rooms) hold(o settings.Override, deletion *Change) {
	if strings.Count(o.Pattern, "*") < 2 {
		return
	}
	here := r.of(o)
	here.there = append(here.there, o.Pattern)
	if deletion != nil {
		here.going[o.Pattern] = deletion
	}
}

// take adds a new pattern, and returns the deletions that make room for it.
func (r rooms) take(o settings.Override) (first []*Change) {
	if strings.Count(o.Pattern, "*") < 2 {
		return nil
	}
	here := r.of(o)
	for len(here.going) > 0 && window.PatternsAlike(o.Pattern, here.there) >= window.PatternsAlikeMax {
		at := slices.IndexFunc(here.there, func(other string) bool {
			return here.going[other] != nil && window.PatternsAlike(o.Pattern, []string{other}) > 0
		})
		if at < 0 {
			break // the API will reject the pattern with an error
		}
		first = append(first, here.going[here.there[at]])
		delete(here.going, here.there[at])
		here.there = slices.Delete(here.there, at, at+1)
	}
	here.there = append(here.there, o.Pattern)
	return first
}

func (r rooms) of(o settings.Override) *room {
	name := settings.Namespace{Workspace: o.Workspace, Namespace: o.Namespace}
	if r[name] == nil {
		r[name] = &room{going: make(map[string]*Change)}
	}
	return r[name]
}
