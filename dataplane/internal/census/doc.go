// Package census describes a node's keys to operators: which keys are hot or denied, how many are active, and whether
// the table has room for new keys. Requests do no work for it: it walks the table now and then, and reads counters.
package census
