// Package plan has the plan of a rollout: stages, their regions and nodes, the times between looks, and the bounds of
// guardrails. It decides from values alone. Package guard compares figures with the bounds.
//
//	plan.go stages.go      stages as operators write them, and in a fleet
//	guardrails.go          how much worse regions and nodes may do
package plan
