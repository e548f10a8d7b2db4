// Package deploy is the top of the house: what runs Weir, on one machine or many,
// and the tests of the whole. Nothing imports it.
package deploy
