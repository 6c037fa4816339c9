"""Modules of claims, whose asserts say what differs."""

import pytest

pytest.register_assert_rewrite("claims_readme")
