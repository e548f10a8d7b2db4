// Package routers has the code of the guide on routers, and its tests. It is a module of its own, so that the routers
// are no dependencies of Weir.
package routers
