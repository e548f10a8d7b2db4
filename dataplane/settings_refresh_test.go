package dataplane_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// rewritten is a source of settings that can block a read.
type rewritten struct {
	limit int64
	goOn  chan struct{} // nil: reads are not blocked
}

func (r *rewritten) Settings(context.Context, string) (store.SettingsRows, error) {
	rows := store.SettingsRows{Overrides: []store.OverrideRow{{Workspace: "acme", Namespace: "api", Pattern: "*", Limit: r.limit}}}
	if r.goOn != nil {
		<-r.goOn
	}
	return rows, nil
}

func (*rewritten) Heartbeat(context.Context, ...heartbeat.Heartbeat) error { return nil }

// A limiter that is not started yet uses settings as soon as RefreshSettings has returned.
func TestRefreshSettings(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: &rewritten{limit: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := l.Allow(t.Context(), ask("k", 1, 10)); d.Limit != 3 || d.Override != "*" {
		t.Errorf("%+v", d)
	}
	alone, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := alone.RefreshSettings(t.Context()); !errors.Is(err, dataplane.ErrNoSettings) {
		t.Errorf("without settings: %v", err)
	}
}

// Of two concurrent reads, the read that begins later is in force in the end.
func TestASlowReadOfSettingsDoesNotUndoALaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &rewritten{limit: 3, goOn: make(chan struct{})}
		l, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: "a", Settings: source})
		if err != nil {
			t.Fatal(err)
		}
		refresh := func() {
			if err := l.RefreshSettings(t.Context()); err != nil {
				t.Error(err)
			}
		}
		goOn := source.goOn
		go refresh()
		synctest.Wait()
		source.limit, source.goOn = 7, nil
		go refresh()
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if d := l.Allow(t.Context(), ask("k", 1, 10)); d.Limit != 7 {
			t.Errorf("%+v", d)
		}
	})
}
