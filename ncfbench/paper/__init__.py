"""The paper's figures and claims (KDD 2017), and the rules that judge its claims by ours."""
