// Package fleet lists the nodes that send heartbeats. From the heartbeats it derives looks at regions, rates, relays,
// and the delays between regions.
package fleet
