package counttest_test

import (
	"os"
	"testing"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest/counttest"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A suite that nothing can fail proves nothing.
func TestEveryFaultIsFound(t *testing.T) {
	suite.FindFaults(t, "TestCountsSubject", countsFaults)
	suite.FindFaults(t, "TestFeedSubject", feedFaults)
}

// Without a fault the subject passes, so the suite's demands can be met.
func TestCountsSubject(t *testing.T) {
	fault := os.Getenv(suite.FaultVariable)
	counttest.TestCountStore(t, func(testing.TB) counttest.Store {
		s := &countsSubject{fault: fault, index: make(map[string]int)}
		return counttest.Store{
			Counts: s,
			PutTuning: func(_ testing.TB, region string, version int64, document []byte) {
				s.tunings = append(s.tunings, tuningRow{region, version, document})
			},
			PutNamespaces: func(_ testing.TB, rows ...store.NamespaceRow) { s.namespaces = append(s.namespaces, rows...) },
			PutOverrides:  func(_ testing.TB, rows ...store.OverrideRow) { s.overrides = append(s.overrides, rows...) },
			PutResets:     func(_ testing.TB, rows ...store.ResetRow) { s.resets = append(s.resets, rows...) },
			Heartbeats:    func(testing.TB) []heartbeat.Heartbeat { return s.beats },
		}
	})
}

// countsFaults are deliberate faults of a CountStore, each with the beginning of
// the name of the subtest that must find it. (Others may find it too.)
var countsFaults = map[string]string{
	"the last writer wins":                 "Publish/a_smaller_count_than_the_stored_one_changes_nothing",
	"never raises":                         "Publish/raises_region's_own_components",
	"stores the first row only":            "Publish/raises_region's_own_components",
	"adds up publications":                 "Publish/publishing_twice_changes_nothing",
	"no rows are an error":                 "Publish/no_rows_are_no_work",
	"takes too many rows":                  "Publish/at_most_PublishRowsMax_rows",
	"takes unsorted rows":                  "Publish/rows_must_be_sorted",
	"takes duplicates":                     "Publish/rows_must_be_sorted",
	"blames a row for their order":         "Publish/rows_must_be_sorted",
	"takes names of any length":            "Publish/ErrRefused",
	"takes negative counts":                "Publish/ErrRefused",
	"takes counts of any size":             "Publish/ErrRefused",
	"stores the rows beside a refused one": "Publish/ErrRefused",
	"refuses without saying so":            "Publish/ErrRefused",
	"keeps a reference to the rows":        "Publish/keeps_no_reference",
	"loses updates":                        "Publish/may_run_concurrently",
	"yields one region of each cell":       "Import/yields_each_component",
	"adds up regions":                      "Import/yields_each_component",
	"yields a component twice":             "Import/yields_each_component",
	"forgets whose a component is":         "Import/yields_each_component",
	"yields expired cells":                 "Import/yields_each_cell_that_expires_after_nowMs",
	"yields what expires at nowMs":         "Import/yields_each_cell_that_expires_after_nowMs",
	"reads floats":                         "Import/is_exact",
	"yields counts from before their time": "Import/leaves_out",
	"yields half before an error":          "Import/after_an_error",
	"stops without an error":               "Import/after_an_error",
	"a namespace's mode is lost":           "Settings/all_namespaces",
	"names: letter case is lost":           "names_with_any_bytes",
	"names: spaces are trimmed":            "names_with_any_bytes",
	"names: accents are lost":              "names_with_any_bytes",
	"names: accents are composed":          "names_with_any_bytes",
	"names: invalid UTF-8 is replaced":     "names_with_any_bytes",
	"names: end at NUL":                    "names_with_any_bytes",
	"names: are joined by colons":          "names_with_any_bytes",
	"names: are unescaped":                 "names_with_any_bytes",
	"names: are cut at 190 bytes":          "names_of_the_longest",
	"names: workspaces are one":            "durations_and_workspaces",
	"names: namespaces are one":            "names_with_any_bytes",
	"names: durations are one":             "durations_and_workspaces",
	"names: generations are one":           "durations_and_workspaces",
	"names: modes are one":                 "durations_and_workspaces",
	"a reset's generation is lost":         "Settings/all_resets",
	"names: sequences are one":             "Import/yields_each_cell_that_expires_after_nowMs",
	"regions: letter case is lost":         "regions_with_any_bytes",
	"regions: spaces are trimmed":          "regions_with_any_bytes",
	"regions: end at NUL":                  "regions_with_any_bytes",
	"never looks at ctx":                   "all_methods_obey_ctx",
	"hides why ctx ended":                  "all_methods_obey_ctx",
	"documents are never nil":              "Settings/version_0",
	"the fleet's tuning is not seen":       "Settings/the_newest_tuning",
	"the oldest tuning":                    "Settings/the_newest_tuning",
	"the newest of region and fleet":       "Settings/the_newest_tuning",
	"shadow mode is lost":                  "Settings/all_namespaces",
	"settings: letter case is lost":        "Settings/all_namespaces",
	"settings: spaces are trimmed":         "Settings/all_overrides",
	"settings: invalid UTF-8 is replaced":  "Settings/all_overrides",
	"an override's duration is lost":       "Settings/all_overrides",
	"an override's candidate is lost":      "Settings/all_overrides",
	"an override's shadow mode is lost":    "Settings/all_overrides",
	"a health figure is lost":              "Heartbeat/records",
	"the first heartbeat of several alone": "Heartbeat/records_several",
	"heartbeats pile up":                   "Heartbeat/replaces",
	"a stopped node stays":                 "Heartbeat/counts_a_node_as_live",
	"an earlier word after the last":       "Heartbeat/counts_a_node_as_live",
	"the first heartbeat stays":            "Heartbeat/replaces",
	"top keys are lost":                    "Heartbeat/keeps_its_top_keys",
	"nodes: letter case is lost":           "Heartbeat/nodes_are_apart",
	"nodes: spaces are trimmed":            "Heartbeat/nodes_are_apart",
}
