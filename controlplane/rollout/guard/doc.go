// Package guard has the figures of the nodes that a rollout watches, and judges whether they break the bounds of its
// plan. It is pure: it decides from looks at heartbeats and from the plan, without I/O or a clock.
//
// A [Judge] takes looks into [Figures] and an [Effect], which are parts of the rollout's document. Package sequential
// has the statistical tests.
//
//	guard.go                            the judge, and its part of the document
//	watch.go shares.go relays.go        figures of regions and nodes (RegionWatch)
//	breach.go evidence.go               whether figures break the bounds, compared with the past
//	compare.go                          the comparison with regions and nodes without the tuning
//	effect.go                           what a change of limits newly denies
//	queries.go                          values of Prometheus
//	rails.go                            figures and their bounds, for people
package guard
