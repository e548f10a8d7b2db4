package relay_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// noMailbox is a RelayOrigin that is no Mailbox, so it cannot carry settings.
type noMailbox struct{ store.RelayOrigin }

// A relay can carry counts over an origin that is no Mailbox. With Config.Settings, New returns an error, because the
// settings would reach no node.
func TestARelayWithSettingsNeedsAMailbox(t *testing.T) {
	config := func() relay.Config {
		return relay.Config{Region: "eu", Holder: "a", Origin: noMailbox{memstore.NewOrigin(memstore.OriginOptions{})},
			Feed: memstore.NewFeed(memstore.FeedOptions{}), Counts: memstore.NewCounts(memstore.CountsOptions{})}
	}
	r, err := relay.New(config())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Step(t.Context()); err != nil {
		t.Errorf("a step: %v", err)
	}
	with := config()
	with.Settings = memstore.NewCounts(memstore.CountsOptions{})
	if _, err := relay.New(with); err == nil || !strings.Contains(err.Error(), "relay_test.noMailbox, is not a store.Mailbox") {
		t.Errorf("with settings: %v", err)
	}
}
