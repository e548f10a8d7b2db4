// Package counttest tests every CountStore and Feed against the contracts of package store. An implementation's own
// tests should call TestCountStore or TestFeed with a function that opens an empty store, for example:
//
//	counttest.TestFeed(t, func(testing.TB) counttest.Feed {
//		f := myfeed.New()
//		return counttest.Feed{Feed: f, Hold: f.Hold, Lose: f.Lose}
//	})
//
// Package storetest has the suite of origins, and explains the structure of the suites: for example, each sentence of a
// contract is a subtest named after it.
package counttest
