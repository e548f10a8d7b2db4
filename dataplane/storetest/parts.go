package storetest

import (
	"slices"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/internal/optional"
)

// parts are the optional parts that an origin has; the others are nil.
type parts struct {
	store.Granter
	store.Mailbox
	store.Relayed
}

func partsOf(o store.Origin) (p parts) {
	p.Granter, _ = o.(store.Granter)
	p.Mailbox, _ = o.(store.Mailbox)
	p.Relayed, _ = o.(store.Relayed)
	return p
}

var originPartTests = map[string]func(*originTest){
	"are whole or not there": func(h *originTest) {
		for _, problem := range optional.Broken(h.Origin.Origin) {
			h.Error(problem)
		}
		if h.Mailbox != nil && h.Relayed == nil {
			h.Errorf("%T is a store.Mailbox, and not store.Relayed: no relay can store settings in it", h.Origin.Origin)
		}
	},
	"are not hidden by a wrapper": func(h *originTest) {
		h.wantNothingHidden(h.Origin.Origin)
	},
	"are those of every way to the origin": func(h *originTest) {
		way := h.Client(h)
		h.wantNothingHidden(way)
		if got, want := optional.Names(way), optional.Names(h.Origin.Origin); !slices.Equal(got, want) {
			h.Errorf("another way is %v, this one is %v", got, want)
		}
	},
}

// wantNothingHidden expects an origin to have all parts of an origin that it embeds as an interface.
func (h *originTest) wantNothingHidden(o store.Origin) {
	h.Helper()
	for _, problem := range optional.Hidden(o) {
		h.Error(problem)
	}
}
