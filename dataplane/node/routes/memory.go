package routes

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// memoryMax is how many overrides Memory holds: each costs the limiter's next snapshot
// some hundred bytes.
const memoryMax = 100_000

// Memory implements Overrides for a node without stores: it keeps them as long as the process lives. It is also the
// limiter's Settings.
type Memory struct {
	mu   sync.Mutex
	rows []store.OverrideRow // sorted by compareRows
}

var (
	_ Overrides      = (*Memory)(nil)
	_ store.Settings = (*Memory)(nil)
)

func compareRows(a, b store.OverrideRow) int {
	return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Pattern, b.Pattern))
}

func (m *Memory) findLocked(workspace, namespace, pattern string) (int, bool) {
	return slices.BinarySearchFunc(m.rows, store.OverrideRow{Workspace: workspace, Namespace: namespace,
		Pattern: pattern}, compareRows)
}

// Set implements Overrides.
func (m *Memory) Set(_ context.Context, workspace, namespace string, o Override) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	row := store.OverrideRow{Workspace: workspace, Namespace: namespace, Pattern: o.Pattern, Limit: o.Limit,
		DurationMs: o.DurationMs}
	i, found := m.findLocked(workspace, namespace, o.Pattern)
	switch {
	case found:
		m.rows[i] = row
		return nil
	case len(m.rows) >= memoryMax:
		return errFull
	}
	if err := m.roomForLocked(workspace, namespace, o.Pattern); err != nil {
		return err
	}
	m.rows = slices.Insert(m.rows, i, row)
	return nil
}

// Get implements Overrides.
func (m *Memory) Get(_ context.Context, workspace, namespace, pattern string) (Override, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.findLocked(workspace, namespace, pattern)
	if !found {
		return Override{}, false, nil
	}
	return Override{pattern, m.rows[i].Limit, m.rows[i].DurationMs}, true, nil
}

// List implements Overrides.
func (m *Memory) List(_ context.Context, workspace, namespace, after string, most int) (list []Override, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.findLocked(workspace, namespace, after)
	if found {
		i++
	}
	for ; i < len(m.rows) && len(list) < most; i++ {
		row := &m.rows[i]
		if row.Workspace != workspace || row.Namespace != namespace {
			break
		}
		list = append(list, Override{row.Pattern, row.Limit, row.DurationMs})
	}
	return list, nil
}

// Delete implements Overrides.
func (m *Memory) Delete(_ context.Context, workspace, namespace, pattern string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, found := m.findLocked(workspace, namespace, pattern)
	if found {
		m.rows = slices.Delete(m.rows, i, i+1)
	}
	return found, nil
}

// Settings implements store.Settings.
func (m *Memory) Settings(context.Context, string) (store.SettingsRows, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return store.SettingsRows{Overrides: slices.Clone(m.rows), NodesLive: 1}, nil
}

// Heartbeat implements store.Settings. A node without stores reports nowhere.
func (*Memory) Heartbeat(context.Context, ...heartbeat.Heartbeat) error { return nil }

// roomForLocked is roomFor in memory, before the row is there.
func (m *Memory) roomForLocked(workspace, namespace, pattern string) error {
	if strings.Count(pattern, "*") < 2 {
		return nil
	}
	var others []string
	for i, _ := m.findLocked(workspace, namespace, ""); i < len(m.rows) && m.rows[i].Workspace == workspace &&
		m.rows[i].Namespace == namespace; i++ {
		others = append(others, m.rows[i].Pattern)
	}
	if window.PatternsAlike(pattern, others) >= window.PatternsAlikeMax {
		return ErrPatternsAlike
	}
	return nil
}
