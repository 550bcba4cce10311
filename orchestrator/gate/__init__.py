"""The gate: a policy, its checks over the runs of a campaign, and the documents with the decision."""
