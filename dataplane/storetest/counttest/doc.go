// Package counttest holds every CountStore and Feed to the contracts that package store states for them. An
// implementation's own tests call TestCountStore or TestFeed with a way to open an empty one, for example:
//
//	counttest.TestFeed(t, func(testing.TB) counttest.Feed {
//		f := myfeed.New()
//		return counttest.Feed{Feed: f, Hold: f.Hold, Lose: f.Lose}
//	})
//
// Package storetest has the suite of origins, and says how the suites are made: each sentence of a contract is a
// subtest named after it, for example.
package counttest
