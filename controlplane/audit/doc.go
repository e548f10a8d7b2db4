// Package audit holds the entries that every change leaves, their pages, and the chain that shows whether one was
// changed or removed.
package audit
