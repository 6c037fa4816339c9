"""What "On Sampling Strategies for Neural Network-based Collaborative Filtering" (KDD 2017) printed, as data."""
