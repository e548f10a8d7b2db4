// Package storetest holds every Origin to the contract that package store states for it. Package counttest does so for
// a CountStore and a Feed. An implementation's own tests call TestOrigin with a way to open an empty one. TestOrigin
// also tests the optional parts of an origin that are there. An implementation's other tests are only about what is
// its own, such as how it fails.
//
// Each sentence of a contract is a subtest named after it. Beside those, random
// histories are compared with a model that is too dumb to be wrong, and names that
// like to be confused with each other are kept apart. The package's own tests run
// the suites against implementations with one deliberate fault each and demand
// that every fault is found.
//
// What it cannot see from outside the interfaces, and leaves to the
// implementations' own tests: that
// nothing is retried, and that increment and expiry are one atomic step.
package storetest
