// Package deploy has the means to run Weir, on one machine or many, and the tests of the whole. No other package
// imports it.
package deploy
