package store

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/window"
)

// identifiersMax is the most identifiers in a statement.
const identifiersMax = 1000

// OverridesOf reads the patterns that can match any of the identifiers once, for all together. It looks the identifiers
// up in the index that nodes use, because SQL would compare each identifier with each pattern.
func (s settings) OverridesOf(ctx context.Context, workspace, namespace string,
	identifiers []string) (map[string]*limits.Override, error) {
	found := make(map[string]*limits.Override)
	if len(identifiers) == 0 {
		return found, nil
	}
	for some := range slices.Chunk(identifiers, identifiersMax) {
		rows, err := s.queries.OverridesOf(ctx, controlplanedb.OverridesOfParams{
			WorkspaceID: []byte(workspace), Namespace: []byte(namespace), Patterns: allBytes(some),
		})
		if err != nil {
			return nil, fmt.Errorf("look for the overrides of identifiers: %w", explain(err))
		}
		for _, r := range rows {
			if pattern := string(r.Pattern); window.IsExact(pattern) {
				found[pattern] = overrideOf(workspace, namespace, pattern, controlplanedb.OverrideGetRow{Limit: r.Limit,
					DurationMs: r.DurationMs, Candidate: r.Candidate, Shadow: r.Shadow, UpdatedAt: r.UpdatedAt})
			}
		}
	}
	many, err := s.overridesOfMany(ctx, workspace, namespace, slices.Min(identifiers), slices.Max(identifiers))
	if err != nil || len(many) == 0 {
		return found, err
	}
	patterns := make([]string, len(many))
	for i := range many {
		patterns[i] = many[i].Pattern
	}
	index, _ := window.NewPatterns(patterns)
	for _, identifier := range identifiers {
		if place := index.Find(identifier); place >= 0 && found[identifier] == nil {
			found[identifier] = &many[place]
		}
	}
	return found, nil
}

// overridesOfMany returns the overrides of a namespace that are not exact and can match an identifier from first to
// last, the most specific first.
func (s settings) overridesOfMany(ctx context.Context, workspace, namespace, first,
	last string) (many []limits.Override, err error) {
	rows, err := s.queries.OverridesOfMany(ctx, controlplanedb.OverridesOfManyParams{WorkspaceID: []byte(workspace),
		Namespace: []byte(namespace), First: []byte(first), Last: []byte(last)})
	if err != nil {
		return nil, fmt.Errorf("look for overrides of many identifiers: %w", explain(err))
	}
	for _, r := range rows {
		if pattern := string(r.Pattern); !window.IsExact(pattern) {
			many = append(many, *overrideOf(workspace, namespace, pattern, controlplanedb.OverrideGetRow{Limit: r.Limit,
				DurationMs: r.DurationMs, Candidate: r.Candidate, Shadow: r.Shadow, UpdatedAt: r.UpdatedAt}))
		}
	}
	slices.SortFunc(many, func(a, b limits.Override) int { return window.ComparePatterns(a.Pattern, b.Pattern) })
	return many, nil
}

func allBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i := range texts {
		all[i] = []byte(texts[i])
	}
	return all
}
