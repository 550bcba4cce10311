"""Authorization of requests: which operations a principal may do on which resources, by API key."""
