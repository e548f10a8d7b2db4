// Package e2e tests the whole: the real processes of Weir with real MariaDB or MySQL, Redis and Restate servers, on
// loopback, with faults.
package e2e
