package main

func Example() {
	main()
	// Output: allowed, 99 left
}
