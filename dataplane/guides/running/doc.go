// Package running has the code of the guide on health, metrics and shutdown, and its tests.
package running
