"""The paper's figures and claims (KDD 2017), and the rules that judge ours beside them."""
