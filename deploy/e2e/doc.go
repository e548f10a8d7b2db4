// Package e2e tests the whole: real processes of our own against real MariaDB or MySQL, Redis
// and Restate servers, on loopback, with faults.
package e2e
