// Package storetest tests every Origin against the contract of package store. Package counttest does so for a
// CountStore and a Feed. An implementation's own tests should call TestOrigin with a function that opens an empty
// origin. TestOrigin also tests the optional parts of an origin that are there. An implementation's other tests should
// cover only its own behavior, such as how it fails.
//
// Each sentence of a contract is a subtest named after it. In addition, random histories are compared with a model that
// is too simple to be wrong, and names that are easy to confuse are kept apart. The package's own tests run the suites
// against implementations with a single deliberate fault each, and every fault must be found.
//
// The suites can't see two things from outside the interfaces, so an implementation's own tests must cover them: that
// nothing is retried, and that increment and expiry are one atomic step.
package storetest
